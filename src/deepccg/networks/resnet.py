"""ResNet18 with few filters and instance normalisation: the paper's embedding."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.networks.native import instance_norm


def as_float(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Bytes become floats in [-1, 1]; floats stay as they are."""
    return x if x.is_floating_point() else x.to(dtype).sub_(127.5).div_(127.5)


class InstanceNorm(nn.GroupNorm):
    """Instance normalisation, as GroupNorm with one channel per group.

    The same function as ``InstanceNorm2d`` without running statistics, and on CPUs faster than
    every other eager form of it (docs/performance.md): no copies between layouts. It couples no
    two examples, so an embedding does not depend on batch mates and training mode equals
    evaluation mode.

    Args:
        channels: Channels, each normalised by itself.
        affine: Whether there is a learned scale and shift.
        native: Use the kernel of ``deepccg.networks.native`` for single precision on the CPU.
    """

    def __init__(self, channels: int, affine: bool = True, native: bool = False) -> None:
        super().__init__(channels, channels, affine=affine)
        self.native = native

    def forward(self, x: Tensor) -> Tensor:
        """``[B, C, H, W] -> [B, C, H, W]``."""
        return self._normalise(x, self.weight, self.bias)

    def normalised(self, x: Tensor) -> Tensor:
        """``forward`` before scale and shift."""
        return self._normalise(x, None, None)

    def _normalise(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        plain = x.device.type == "cpu" and x.dtype == torch.float32
        if self.native and plain and not torch.compiler.is_compiling():
            return instance_norm(x, weight, bias, self.eps)
        return F.group_norm(x, self.num_groups, weight, bias, self.eps)


class Pointwise(nn.Conv2d):
    """A 1x1 convolution; of channels-last images, which ``native`` promises, a matrix product.

    Not only for speed: for fewer than 8 channels and a stride above 1 the gradient of oneDNN's own
    writes out of bounds there (its issue 6035).
    """

    def __init__(self, inputs: int, outputs: int, stride: int, native: bool = False) -> None:
        super().__init__(inputs, outputs, 1, stride, bias=False)
        self.native = native

    def forward(self, x: Tensor) -> Tensor:
        """``[B, I, H, W] -> [B, O, H/stride, W/stride]``."""
        if not self.native:
            return super().forward(x)
        down, right = self.stride
        pixels = x.permute(0, 2, 3, 1)[:, ::down, ::right]
        return F.linear(pixels, self.weight.flatten(1)).permute(0, 3, 1, 2)


class BasicBlock(nn.Module):
    """conv - norm - ReLU - conv - norm, plus the shortcut, then ReLU."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, affine: bool = True, native: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = InstanceNorm(outputs, affine, native)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = InstanceNorm(outputs, affine, native)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                Pointwise(inputs, outputs, stride, native),
                InstanceNorm(outputs, affine, native),
            )

    def forward(self, x: Tensor) -> Tensor:
        """``[B, I, H, W] -> [B, O, H/stride, W/stride]``."""
        # In place: a norm's gradient needs its input, never its output.
        hidden = F.relu_(self.norm1(self.conv1(x)))
        return F.relu_(self.norm2(self.conv2(hidden)).add_(self.shortcut(x)))


class SlimResNet18(nn.Module):
    """ResNet18 for small images: 3x3 stem, four stages of two blocks, global average pooling.

    With ``width=10`` it has six times fewer filters than ResNet18 and embeds into 80 dimensions
    for every image size; with a 100-class linear head that is 282,270 parameters.

    Args:
        channels: Image channels.
        width: Filters of the first stage.
        affine: Whether the norms have a learned scale and shift.
        native: Normalise channels-last images with a compiled kernel.
    """

    SMALLEST_SIDE = 16  # below it the last maps have one pixel, which normalises to a constant

    def __init__(
        self, channels: int = 3, width: int = 10, affine: bool = True, native: bool = False
    ) -> None:
        super().__init__()
        self.layout = torch.channels_last if native else torch.contiguous_format
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, padding=1, bias=False),
            InstanceNorm(width, affine, native),
            nn.ReLU(inplace=True),
        )
        blocks = []
        inputs = width
        for stage, stride in enumerate((1, 2, 2, 2)):
            outputs = width * 2**stage
            blocks.append(BasicBlock(inputs, outputs, stride, affine, native))
            blocks.append(BasicBlock(outputs, outputs, 1, affine, native))
            inputs = outputs
        self.stages = nn.Sequential(*blocks)
        self.dim = inputs

    def forward(self, x: Tensor) -> Tensor:
        """``[B, channels, H, W]`` bytes or floats ``-> [B, 8 width]``."""
        if x.ndim != 4 or min(x.shape[2:]) < self.SMALLEST_SIDE:
            raise InputError(
                f"resnet18 needs images of at least {self.SMALLEST_SIDE} pixels a side, "
                f"got {list(x.shape[1:])}; use the mlp network"
            )
        x = as_float(x, next(self.parameters()).dtype).contiguous(memory_format=self.layout)
        pooled: Tensor = self.stages(self.stem(x)).mean(dim=(2, 3))
        return pooled
