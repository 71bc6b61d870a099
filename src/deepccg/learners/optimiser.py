"""From losses per example to moved weights: the reduction, and the one place where weights move."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveFloat
from torch import Tensor

from deepccg.core import Config, Diverged, all_finite

Reduction = Literal["mean", "sum"]
ReplayReduction = Literal["mean", "sum", "means"]


class OptimiserConfig(Config):
    """Fields of the optimiser; the base of every method's configuration."""

    lr: PositiveFloat = Field(0.1, description="step size")


class Optimiser:
    """Plain SGD: ``theta <- theta - lr gradient``, for parameters of precision ``dtype``."""

    def __init__(self, lr: float, dtype: torch.dtype) -> None:
        self.lr, self.dtype = lr, dtype

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], number: int) -> None:
        """Move ``parameters`` in place.

        Raises:
            Diverged: If step ``number`` leaves a parameter that is not finite.
        """
        if self.lr > torch.finfo(self.dtype).max:
            raise Diverged(f"lr {self.lr:g} is beyond all {self.dtype} numbers: try a smaller lr")
        if parameters:
            torch._foreach_sub_(tuple(parameters), tuple(gradients), alpha=self.lr)
        if not all_finite(parameters):
            raise Diverged(f"the weights are not finite after step {number}: try a smaller lr")


def reduce(terms: Tensor, reduction: Reduction) -> Tensor:
    """Mean or sum of per-example terms."""
    return terms.mean() if reduction == "mean" else terms.sum()


def reduce_replay(terms: Tensor, batch: int, reduction: ReplayReduction) -> Tensor:
    """Reduce the terms of ``batch`` new examples and of the replayed ones behind them.

    ``mean`` and ``sum`` are over all of them; ``means`` is the mean over the batch plus the mean
    over the replay, about twice ``mean``. Where one of the two has no terms it counts nothing.
    """
    if reduction != "means":
        return reduce(terms, reduction)
    parts = [part.mean() for part in (terms[:batch], terms[batch:]) if len(part)]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]
