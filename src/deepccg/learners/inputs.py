"""What a learner's inputs look like, and the refusal of any others."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deepccg.core import InputError, State, StateMismatch, check_examples


def require_finite(x: Tensor, what: str) -> None:
    """Refuse NaN, infinity, and numbers whose squares are infinite."""
    if x.is_floating_point() and not usable(x):
        raise InputError(f"{what} has values that are not finite, or too large: clean the inputs")


def usable(x: Tensor) -> bool:
    """Whether every number has a finite square; half precision counts as single."""
    if x.numel() == 0:
        return True
    largest = x.detach().abs().amax().item()  # NaN if there is one
    precision = torch.promote_types(x.dtype, torch.float32)
    return largest <= math.sqrt(torch.finfo(precision).max)


@torch.no_grad()
def all_finite(parameters: Sequence[Tensor]) -> bool:
    """Whether there is no NaN and no infinity; one or two hundredths of a step.

    One sum over everything tells: it is finite unless a summand is not, or all are beyond use.
    """
    if not parameters:
        return True
    return math.isfinite(torch.cat([p.flatten() for p in parameters]).sum().item())


KINDS = ("uint8", "float")
# Embedded at once without gradient: activations stay in the cache, and a multiple of eight images
# fills the registers of the native kernels.
IMAGES, VECTORS = 48, 2000


class InputForm:
    """Shape and kind of an example: told by the first batch, the same for ever after."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None  # of one example; None: nothing came yet
        self.kind: str | None = None

    def require(self, x: Tensor, what: str) -> None:
        """Refuse examples ``x [B, ...]`` unlike those that came before."""
        check_examples(x, what)
        if x.ndim < 2:
            raise InputError(f"{what} must have the shape [B, ...], not {list(x.shape)}")
        shape, kind = tuple(x.shape[1:]), kind_of(x)
        if self.shape is not None and (shape, kind) != (self.shape, self.kind):
            raise InputError(
                f"{what} has examples {list(shape)} {kind}, this learner has learned "
                f"{list(self.shape)} {self.kind}: bring them to the same form"
            )

    def note(self, x: Tensor) -> None:
        """Hold all further examples to the form of these."""
        self.shape, self.kind = tuple(x.shape[1:]), kind_of(x)

    def state(self) -> State:
        """Shape and kind, as JSON."""
        shape = None if self.shape is None else list(self.shape)
        return State({}, {"shape": shape, "kind": self.kind})

    def check(self, state: State) -> None:
        """Both or neither, and a kind that there is."""
        shape, kind = state.meta["shape"], state.meta["kind"]
        told = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not (told and kind in KINDS) and not (shape is None and kind is None):
            raise StateMismatch(f"the state's inputs are {shape!r} {kind!r}")

    def load(self, state: State) -> None:
        """Be what ``state`` says."""
        shape = state.meta["shape"]
        self.shape = None if shape is None else tuple(shape)
        self.kind = state.meta["kind"]


def kind_of(x: Tensor) -> str:
    """Bytes, or floating numbers of any precision; else the type's name."""
    return "float" if x.is_floating_point() else str(x.dtype).removeprefix("torch.")


def in_pieces(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)``, which treats each example ``x [B, ...]`` by itself, a piece at a time."""
    size = IMAGES if x.ndim > 2 else VECTORS
    if len(x) <= size:
        return function(x)
    return torch.cat([function(piece) for piece in torch.split(x, size)])


def require_embeddable(network: nn.Module, x: Tensor, shape: Sequence[int]) -> None:
    """Refuse examples ``x`` that the network does not turn into ``shape``.

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
