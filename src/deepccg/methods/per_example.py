"""The gradient of each example by itself."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from deepccg.core import InputError
from deepccg.methods.losses import masked_cross_entropy

_COUPLING = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)


def per_example_gradients(
    modules: Sequence[nn.Module], x: Tensor, y: Tensor, mask: Tensor
) -> tuple[list[Tensor], Tensor]:
    """Gradients of each example's masked cross entropy, all in one vectorised pass.

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
