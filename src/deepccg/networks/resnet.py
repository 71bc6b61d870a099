"""ResNet18 with few filters and instance normalisation: the paper's embedding."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.networks.kernels import (
    collects_per_sample_gradients,
    convolve,
    instance_norm,
    is_supported,
    pad_batch,
)
from deepccg.networks.mlp import ModeFreeModule, as_float


class Convolution(nn.Conv2d):
    """A convolution with a square kernel, zeros around the image and no bias.

    Args:
        inputs: Channels of the images.
        outputs: Channels of the result.
        kernel: Pixels of a side of the kernel, an odd number.
        stride: Between the pixels that are computed.
        native: Use the kernels of ``deepccg.networks.kernels`` where they are supported.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, native: bool = False
    ) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
        self.native = native

    def forward(self, x: Tensor) -> Tensor:
        """``[B, I, H, W] -> [B, O, H/stride, W/stride]``."""
        if self.native and is_supported(x):
            return convolve(x, self.weight, self.stride[0], self.kernel_size[0] // 2)
        return super().forward(x)


class InstanceNorm(nn.GroupNorm):
    """Instance normalisation, as GroupNorm with one channel per group.

    The same function as ``InstanceNorm2d`` without running statistics, and on CPUs faster than
    every other eager form of it (docs/performance.md): no copies between layouts. It couples no
    two examples, so an embedding does not depend on batch mates and training mode equals
    evaluation mode.

    Args:
        channels: Channels, each normalised by itself.
        affine: Whether there is a learned scale and shift.
        native: Use the kernels of ``deepccg.networks.kernels`` where they are supported.
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

    def activated(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """``relu(forward(x) + residual)``, in one pass unless ``forward`` has a hook."""
        has_hooks = self._forward_hooks or self._forward_pre_hooks
        if self.native and is_supported(x) and not has_hooks:
            return instance_norm(x, self.weight, self.bias, self.eps, residual, relu=True)
        # In place: a norm's gradient needs its input, never its output.
        y: Tensor = self(x)
        return F.relu_(y if residual is None else y.add_(residual))

    def _normalise(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        if self.native and is_supported(x):
            return instance_norm(x, weight, bias, self.eps)
        return F.group_norm(x, self.num_groups, weight, bias, self.eps)


class Stem(nn.Sequential):
    """conv - norm - ReLU."""

    def __init__(self, inputs: int, outputs: int, affine: bool, native: bool) -> None:
        super().__init__(
            Convolution(inputs, outputs, 3, native=native), InstanceNorm(outputs, affine, native)
        )

    def forward(self, x: Tensor) -> Tensor:
        """``[B, I, H, W] -> [B, O, H, W]``."""
        convolution, norm = self
        assert isinstance(norm, InstanceNorm)  # noqa: S101  (a Sequential's are of any kind)
        return norm.activated(convolution(x))


class BasicBlock(nn.Module):
    """conv - norm - ReLU - conv - norm, plus the shortcut, then ReLU."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, affine: bool = True, native: bool = False
    ) -> None:
        super().__init__()
        self.conv1 = Convolution(inputs, outputs, 3, stride, native)
        self.norm1 = InstanceNorm(outputs, affine, native)
        self.conv2 = Convolution(outputs, outputs, 3, native=native)
        self.norm2 = InstanceNorm(outputs, affine, native)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                Convolution(inputs, outputs, 1, stride, native),
                InstanceNorm(outputs, affine, native),
            )

    def forward(self, x: Tensor) -> Tensor:
        """``[B, I, H, W] -> [B, O, H/stride, W/stride]``."""
        hidden = self.norm1.activated(self.conv1(x))
        return self.norm2.activated(self.conv2(hidden), self.shortcut(x))


class SlimResNet18(ModeFreeModule):
    """ResNet18 for small images: 3x3 stem, four stages of two blocks, global average pooling.

    With ``width=10`` it has six times fewer filters than ResNet18 and embeds into 80 dimensions
    for every image size; with a 100-class linear head that is 282,270 parameters.

    Args:
        channels: Image channels.
        width: Filters of the first stage.
        affine: Whether the norms have a learned scale and shift.
        native: Use compiled kernels where they are supported.
    """

    CHUNK = 24  # images that native kernels embed at once: activations stay in the cache
    SMALLEST_SIDE = 16  # below it the last maps have one pixel, which normalises to a constant

    def __init__(
        self, channels: int = 3, width: int = 10, affine: bool = True, native: bool = False
    ) -> None:
        super().__init__()
        self.native = native
        self.stem = Stem(channels, width, affine, native)
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
        x = as_float(x, next(self.parameters()).dtype)
        if not (self.native and is_supported(x)):
            return self._pooled(x)
        chunks = [x] if self._whole(x) else torch.split(x, self.CHUNK)
        return torch.cat([self._pooled(pad_batch(chunk))[: chunk.shape[0]] for chunk in chunks])

    def _whole(self, x: Tensor) -> bool:
        """Whether to embed all of ``x`` at once: with gradient that pays for two chunks."""
        few = len(x) <= 2 * self.CHUNK
        return torch.is_grad_enabled() and (few or collects_per_sample_gradients())

    def _pooled(self, x: Tensor) -> Tensor:
        pooled: Tensor = self.stages(self.stem(x)).mean(dim=(2, 3))
        return pooled
