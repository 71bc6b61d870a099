"""The gradient of each example by itself."""

from collections.abc import Sequence
from contextlib import ExitStack

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.func import functional_call, grad_and_value, vmap

from deepccg.core import InputError
from deepccg.methods.layer_gradients import is_known, layer_gradients
from deepccg.methods.losses import masked_cross_entropy

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
    layers = [
        layer
        for layer in chain.modules()
        if any(p.requires_grad for p in layer.parameters(recurse=False))
    ]
    if all(map(is_known, layers)):
        return _by_layers(chain, layers, x, y, mask)
    return _by_vectorising(chain, x, y, mask)


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
    chain: nn.Module, layers: Sequence[nn.Module], x: Tensor, y: Tensor, mask: Tensor
) -> tuple[list[Tensor], Tensor]:
    """One backward pass of the batch down to the layers' outputs; the rest is a product each."""
    tap = _Tap()
    with ExitStack() as hooks, torch.enable_grad():
        for layer in layers:
            hooks.enter_context(layer.register_forward_hook(tap))
        losses = masked_cross_entropy(chain(x), y, mask)
    found: dict[int, Tensor] = {}
    if tap.edges:
        outputs = torch.autograd.grad(losses.sum(), tap.edges)
        for layer, inputs, gradient in zip(tap.layers, tap.inputs, outputs, strict=True):
            named = layer_gradients(layer, inputs, gradient)
            for name, parameter in layer.named_parameters(recurse=False):
                key = id(parameter)
                found[key] = found[key] + named[name] if key in found else named[name]
    gradients = [
        found[id(p)] if id(p) in found else p.new_zeros(len(y), *p.shape)
        for p in chain.parameters()
        if p.requires_grad
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
