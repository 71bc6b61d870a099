"""How a broken promise is told."""

from collections.abc import Callable
from typing import NoReturn

import torch

from deepccg.core import DeepCCGError, State


class ContractError(DeepCCGError, AssertionError):
    """A learner does not do what the contract promises; one line for each promise."""

    def __str__(self) -> str:
        return Exception.__str__(self)


def fail(why: str) -> NoReturn:
    """Say which promise was broken."""
    raise ContractError(why)


def require(promise_kept: bool, why: str) -> None:
    """Insist on a promise."""
    if not promise_kept:
        fail(why)


def require_refused(
    errors: tuple[type[DeepCCGError], ...], call: Callable[[], object], what: str = "the call"
) -> None:
    """Insist that a call is refused with one of ``errors``, and that it says why."""
    wanted = " or ".join(error.__name__ for error in errors)
    try:
        call()
    except errors as refusal:
        require(bool(str(refusal)), f"{what}: the {type(refusal).__name__} does not say why")
        return
    fail(f"{what} was accepted instead of refused with {wanted}")


def require_same(expected: State, found: State, when: str) -> None:
    """Equal names, shapes, types and bits; equal JSON."""
    require(expected.tensors.keys() == found.tensors.keys(), f"tensors come or go {when}")
    for name, tensor in expected.tensors.items():
        other = found.tensors[name]
        same = tensor.dtype == other.dtype and torch.equal(tensor.cpu(), other.cpu())
        require(same, f"the tensor {name} differs {when}")
    require(expected.meta == found.meta, f"the JSON part of the state differs {when}")
