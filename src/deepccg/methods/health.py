"""Numbers that are still numbers: of inputs, and of weights after a step."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from deepccg.core import InputError


def require_finite(x: Tensor, what: str) -> None:
    """Refuse NaN and infinity."""
    if x.is_floating_point() and not finite(x):
        raise InputError(f"{what} has values that are not finite: clean the inputs first")


def finite(x: Tensor) -> bool:
    """Whether there is no NaN and no infinity: told by the sum, unless that overflows."""
    x = x.detach()
    return math.isfinite(x.sum().item()) or bool(torch.isfinite(x).all())


@torch.no_grad()
def all_finite(parameters: Sequence[Tensor]) -> bool:
    """Whether there is no NaN and no infinity; one or two hundredths of a step.

    One sum over everything tells: it is finite unless a summand is not, or all are beyond use.
    """
    if not parameters:
        return True
    return math.isfinite(torch.cat([p.flatten() for p in parameters]).sum().item())
