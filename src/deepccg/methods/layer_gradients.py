"""A layer's gradient for each example, from its inputs and from the gradients of its outputs.

A batch's backward pass already computes the latter for all examples at once; what is left is one
product per layer and example, and all examples' products are one batched product. Differentiating
a network that is vectorised over its weights instead makes of every convolution one with as many
groups as examples, which CPUs are slow at.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deepccg.networks import Convolution, GrowingLinear, InstanceNorm, suits_kernels

Known = nn.Linear | GrowingLinear | nn.Conv2d | nn.GroupNorm | nn.LayerNorm


def is_known(layer: nn.Module) -> bool:
    """Whether ``layer_gradients`` knows this layer."""
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and layer.dilation == (1, 1)
        return plain and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, Known)


def is_noted(layer: nn.Module) -> bool:
    """Whether native kernels note this layer's gradients in the backward pass (``noting_each``)."""
    if isinstance(layer, Convolution | InstanceNorm):
        return layer.native and suits_kernels(layer.weight)
    return False


def layer_gradients(layer: nn.Module, x: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """``[B, *shape]`` for each parameter of ``layer``, by name.

    Args:
        layer: One that ``is_known``.
        x: Its inputs ``[B, ...]``.
        gradient: Of its outputs, ``[B, ...]``.
    """
    if isinstance(layer, nn.Conv2d):
        rows = gradient.permute(0, 2, 3, 1).flatten(1, 2)  # [B, P, O]
        weight = torch.bmm(rows.transpose(1, 2), _patches(layer, x))
        shape = (len(x), layer.out_channels, *layer.kernel_size, layer.in_channels)
        weight = weight.view(shape).permute(0, 1, 4, 2, 3)
        return {"weight": weight, "bias": rows.sum(dim=1)}
    if isinstance(layer, nn.Linear | GrowingLinear):
        x, gradient = (
            each.flatten(1, -2) if each.ndim > 2 else each[:, None] for each in (x, gradient)
        )
        return {"weight": torch.bmm(gradient.transpose(1, 2), x), "bias": gradient.sum(dim=1)}
    product = gradient * _normalised(layer, x)
    if isinstance(layer, nn.LayerNorm):
        last = len(layer.normalized_shape)
        between = tuple(range(1, x.ndim - last))
    else:
        between = tuple(range(2, x.ndim))
    if not between:
        return {"weight": product, "bias": gradient}
    return {"weight": product.sum(dim=between), "bias": gradient.sum(dim=between)}


def _patches(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """What each output pixel sees, ``[B, P, kernel height * kernel width * channels]``."""
    assert not isinstance(layer.padding, str)  # noqa: S101  (``is_known``)
    above, beside = layer.padding
    height, width = layer.kernel_size
    down, right = layer.stride
    # Channels last, so that a row of the kernel is one piece of memory.
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, beside, beside, above, above)).contiguous()
    seen = padded.unfold(1, height, down).unfold(2, width, right)  # [B, H, W, I, height, width]
    return seen.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)


def _normalised(layer: nn.Module, x: Tensor) -> Tensor:
    """What the norm's scale multiplies."""
    if isinstance(layer, InstanceNorm):
        return layer.normalised(x)
    if isinstance(layer, nn.GroupNorm):
        return F.group_norm(x, layer.num_groups, eps=layer.eps)
    assert isinstance(layer, nn.LayerNorm)  # noqa: S101  (the last of the known layers)
    return F.layer_norm(x, layer.normalized_shape, eps=layer.eps)
