"""Numbers that are still numbers: of inputs, and of weights after a step."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from deepccg.core import InputError


def require_finite(x: Tensor, what: str) -> None:
    """Refuse NaN, infinity, and numbers whose squares are infinite."""
    if x.is_floating_point() and not usable(x):
        raise InputError(f"{what} has values that are not finite, or too large: clean the inputs")


def usable(x: Tensor) -> bool:
    """Whether the squares of all numbers have a finite sum, told in one operation."""
    flat = x.detach().flatten()
    flat = flat.to(torch.promote_types(flat.dtype, torch.float32))
    return math.isfinite(torch.dot(flat, flat).item())


@torch.no_grad()
def all_finite(parameters: Sequence[Tensor]) -> bool:
    """Whether there is no NaN and no infinity; one or two hundredths of a step.

    One sum over everything tells: it is finite unless a summand is not, or all are beyond use.
    """
    if not parameters:
        return True
    return math.isfinite(torch.cat([p.flatten() for p in parameters]).sum().item())
