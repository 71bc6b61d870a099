"""The gradient of each example by itself."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad_and_value, vmap

from deepccg.core import InputError
from deepccg.methods.layer_gradients import is_known, is_noted, layer_gradients
from deepccg.methods.losses import masked_cross_entropy
from deepccg.networks import noting_each

_COUPLING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def per_example_gradients(
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
        ``NetworkLearner.trained()``, and the losses ``[B]``. The gradients' mean over B is the
        gradient of the mean loss. They take B times the bytes of the parameters: split a larger
        ``x`` into chunks.
    """
    chain = nn.Sequential(*modules).train()
    require_separable(chain)
    trained = {layer: named for layer in chain.modules() if (named := _trained(layer))}
    if all(map(is_known, trained)):
        return _by_layers(chain, trained, x, y, mask)
    return _by_vectorising(chain, x, y, mask)


def _trained(layer: nn.Module) -> dict[str, nn.Parameter]:
    """The layer's own parameters, by name."""
    named = layer.named_parameters(recurse=False)
    return {name: parameter for name, parameter in named if parameter.requires_grad}


class _Tap:
    """A forward hook that notes what a layer gets and where the gradient of its output is."""

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
    tap, count = _Tap(), len(y)
    noted: list[Any] = []  # parameters, where ``grad`` takes edges as well
    with ExitStack() as hooks, torch.enable_grad(), noting_each(count) as found:
        for layer, named in trained.items():
            if is_noted(layer):
                noted += named.values()
            else:
                hooks.enter_context(layer.register_forward_hook(tap))
        losses = masked_cross_entropy(chain(x), y, mask)
    wanted = tap.edges + noted
    outputs = torch.autograd.grad(losses.sum(), wanted, allow_unused=True) if wanted else ()
    # Behind those of the tap come the noted ones', which are None.
    for layer, inputs, gradient in zip(tap.layers, tap.inputs, outputs, strict=False):
        if gradient is None:  # computed, and not used
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


def _by_vectorising(
    chain: nn.Module, x: Tensor, y: Tensor, mask: Tensor
) -> tuple[list[Tensor], Tensor]:
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
