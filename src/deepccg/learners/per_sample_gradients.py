"""Per-sample gradients: of each example's loss in every parameter, from one backward pass.

A network of the usual layers needs the inputs of each layer and the gradients of its outputs; for
other layers the network of one example is vectorised.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad_and_value, vmap

from deepccg.core import InputError
from deepccg.learners.heads import GrowingLinear, masked_cross_entropy
from deepccg.networks import Convolution, InstanceNorm, kernels

Supported = nn.Linear | GrowingLinear | nn.Conv2d | nn.GroupNorm | nn.LayerNorm


def is_supported(layer: nn.Module) -> bool:
    """Whether ``layer_gradients`` can compute this layer's."""
    if isinstance(layer, nn.Conv2d):
        plain = layer.groups == 1 and layer.dilation == (1, 1)
        return plain and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
    return isinstance(layer, Supported)


def uses_kernels(layer: nn.Module) -> bool:
    """Whether native kernels collect this layer's gradients in the backward pass."""
    if isinstance(layer, Convolution | InstanceNorm):
        return layer.native and kernels.is_supported(layer.weight)
    return False


def layer_gradients(layer: nn.Module, x: Tensor, gradient: Tensor) -> dict[str, Tensor]:
    """``[B, *shape]`` for each parameter of ``layer``, by name.

    Args:
        layer: One that ``is_supported``.
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
    """The inputs of each output pixel, ``[B, P, kernel height * kernel width * channels]``."""
    assert not isinstance(layer.padding, str)  # noqa: S101  (``is_supported``)
    above, beside = layer.padding
    height, width = layer.kernel_size
    down, right = layer.stride
    # Channels last, so that a row of the kernel is contiguous.
    padded = F.pad(x.permute(0, 2, 3, 1), (0, 0, beside, beside, above, above)).contiguous()
    patches = padded.unfold(1, height, down).unfold(2, width, right)  # [B, H, W, I, height, width]
    return patches.permute(0, 1, 2, 4, 5, 3).flatten(3).flatten(1, 2)


def _normalised(layer: nn.Module, x: Tensor) -> Tensor:
    """What the norm's scale multiplies."""
    if isinstance(layer, InstanceNorm):
        return layer.normalised(x)
    if isinstance(layer, nn.GroupNorm):
        return F.group_norm(x, layer.num_groups, eps=layer.eps)
    assert isinstance(layer, nn.LayerNorm)  # noqa: S101  (the last of those supported)
    return F.layer_norm(x, layer.normalized_shape, eps=layer.eps)


_COUPLING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def per_sample_gradients(
    modules: Sequence[nn.Module], x: Tensor, y: Tensor, mask: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Gradients of each example's masked cross entropy, all in one pass.

    Args:
        modules: Applied one after the other, ``x -> logits``: a learner's ``[network, head]``.
        x: Inputs ``[B, ...]``.
        y: Class columns ``[B]``.
        mask: Allowed columns ``[B, C]``.

    Returns:
        One tensor ``[B, *shape]`` for each parameter that is trained, in the order of
        ``NetworkLearner.trainable_parameters()``, and the losses ``[B]``. The gradients' mean over
        B is the gradient of the mean loss. They take B times the bytes of the parameters: split a
        larger ``x`` into chunks.
    """
    chain = nn.Sequential(*modules).train()
    require_separable(chain)
    trained = {layer: named for layer in chain.modules() if (named := _trained(layer))}
    if all(map(is_supported, trained)):
        return _by_layers(chain, trained, x, y, mask)
    return _by_vmap(chain, x, y, mask)


def _trained(layer: nn.Module) -> dict[str, nn.Parameter]:
    """The layer's own parameters, by name."""
    named = layer.named_parameters(recurse=False)
    return {name: parameter for name, parameter in named if parameter.requires_grad}


class _Recorder:
    """A forward hook that records a layer's input and the graph edge of its output's gradient."""

    def __init__(self) -> None:
        self.layers: list[nn.Module] = []
        self.inputs: list[Tensor] = []
        self.edges: list[GradientEdge] = []

    def __call__(self, layer: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        self.layers.append(layer)
        self.inputs.append(args[0].detach())
        # Of the output as it is now: what comes next may overwrite it.
        self.edges.append(get_gradient_edge(output))


def _by_layers(
    chain: nn.Module,
    trained: Mapping[nn.Module, Mapping[str, nn.Parameter]],
    x: Tensor,
    y: Tensor,
    mask: Tensor,
) -> tuple[list[Tensor], Tensor]:
    """One backward pass of the batch down to the layers' outputs; the rest is a product each.

    Native kernels take that product within the pass.
    """
    recorder, count = _Recorder(), len(y)
    collected: list[Any] = []  # parameters, where ``grad`` takes edges as well
    with (
        ExitStack() as hooks,
        torch.enable_grad(),
        kernels.collect_per_sample_gradients(count) as found,
    ):
        for layer, named in trained.items():
            if uses_kernels(layer):
                collected += named.values()
            else:
                hooks.enter_context(layer.register_forward_hook(recorder))
        losses = masked_cross_entropy(chain(x), y, mask)
    wanted = recorder.edges + collected
    outputs = torch.autograd.grad(losses.sum(), wanted, allow_unused=True) if wanted else ()
    # After the recorded layers' come those of the collected parameters, which are None.
    for layer, inputs, gradient in zip(recorder.layers, recorder.inputs, outputs, strict=False):
        if gradient is None:  # the loss does not depend on it
            continue
        each = layer_gradients(layer, inputs[:count], gradient[:count])
        for name, parameter in trained[layer].items():
            known = found.get(id(parameter))
            found[id(parameter)] = each[name] if known is None else known + each[name]
    parameters = {id(p): p for named in trained.values() for p in named.values()}
    gradients = [
        found[key] if key in found else p.new_zeros(count, *p.shape)
        for key, p in parameters.items()
    ]
    return gradients, losses.detach()


def _by_vmap(chain: nn.Module, x: Tensor, y: Tensor, mask: Tensor) -> tuple[list[Tensor], Tensor]:
    """For layers of any kind: the network of one example, vectorised."""
    parameters = dict(chain.named_parameters())
    trained = {name: p.detach() for name, p in parameters.items() if p.requires_grad}
    rest = {name: p.detach() for name, p in parameters.items() if not p.requires_grad}
    rest |= dict(chain.named_buffers())

    def loss(values: dict[str, Tensor], x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
        logits = functional_call(chain, {**values, **rest}, x[None])
        return masked_cross_entropy(logits, y[None], mask[None]).squeeze(0)

    each = vmap(grad_and_value(loss), in_dims=(None, 0, 0, 0), randomness="different")
    gradients, losses = each(trained, x, y, mask)
    return list(gradients.values()), losses


def require_separable(module: nn.Module) -> None:
    """Refuse a network in which an example's output depends on its batch mates."""
    if any(isinstance(layer, _COUPLING) for layer in module.modules()):
        raise InputError(
            "batch normalisation couples the examples of a batch, so that none has a gradient of "
            "its own: use a network with instance, group or layer normalisation"
        )
