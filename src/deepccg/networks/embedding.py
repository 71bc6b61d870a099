"""Embedding without gradient: in chunks, and whether a network can embed at all."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deepccg.core import InputError

# Embedded at once without gradient: activations stay in the cache, and a multiple of eight images
# fills the registers of the native kernels.
IMAGES, VECTORS = 48, 2000


def map_in_chunks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)``, which treats each example ``x [B, ...]`` by itself, a chunk at a time."""
    size = IMAGES if x.ndim > 2 else VECTORS
    if len(x) <= size:
        return function(x)
    return torch.cat([function(chunk) for chunk in torch.split(x, size)])


def require_embeddable(network: nn.Module, x: Tensor, shape: Sequence[int]) -> None:
    """Reject examples ``x`` that the network does not turn into ``shape``.

    The network's ``forward`` is called as such: whoever counts forwards by hooks counts learning.
    """
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            z = network.forward(x)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"the network cannot embed inputs of shape {list(x.shape[1:])}: {reason}"
        ) from error
    finally:
        network.train(training)
    if tuple(z.shape) != tuple(shape):
        raise InputError(
            f"the network embeds one input as {list(z.shape)}, its `dim` says {list(shape)}"
        )
