"""Checks of inputs: type, shape, kind and finite values."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from deepccg.core.errors import InputError, StateMismatch
from deepccg.core.types import State, check_examples

KINDS = ("uint8", "float")


class InputForm:
    """Shape and kind of an example, set by the first batch and fixed from then on."""

    def __init__(self) -> None:
        self.shape: tuple[int, ...] | None = None  # of one example; None: nothing came yet
        self.kind: str | None = None

    def require(self, x: Tensor, what: str) -> None:
        """Reject examples ``x [B, ...]`` unlike those that came before."""
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
        """Reject a state that has only one of the two, or an unknown kind."""
        shape, kind = state.meta["shape"], state.meta["kind"]
        known = isinstance(shape, list) and all(type(n) is int and n >= 0 for n in shape)
        if not (known and kind in KINDS) and not (shape is None and kind is None):
            raise StateMismatch(f"the state's inputs are {shape!r} {kind!r}")

    def load(self, state: State) -> None:
        """Take over shape and kind."""
        shape = state.meta["shape"]
        self.shape = None if shape is None else tuple(shape)
        self.kind = state.meta["kind"]


def kind_of(x: Tensor) -> str:
    """``float`` for floating numbers of any precision, else the type's name."""
    return "float" if x.is_floating_point() else str(x.dtype).removeprefix("torch.")


def require_finite(x: Tensor, what: str) -> None:
    """Reject NaN, infinity, and numbers whose squares are infinite."""
    if x.is_floating_point() and not has_finite_squares(x):
        raise InputError(f"{what} has values that are not finite, or too large: clean the inputs")


def has_finite_squares(x: Tensor) -> bool:
    """Whether every number has a finite square; half precision counts as single."""
    if x.numel() == 0:
        return True
    largest = x.detach().abs().amax().item()  # NaN if there is one
    precision = torch.promote_types(x.dtype, torch.float32)
    return largest <= math.sqrt(torch.finfo(precision).max)


@torch.no_grad()
def all_finite(parameters: Sequence[Tensor]) -> bool:
    """Whether there is no NaN and no infinity; costs one or two hundredths of a step.

    One sum over everything decides: it is finite unless a summand is not, or all are beyond use.
    """
    if not parameters:
        return True
    return math.isfinite(torch.cat([p.flatten() for p in parameters]).sum().item())
