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
