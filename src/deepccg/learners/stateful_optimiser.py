"""Optimisers that remember: momentum, Adam, AdamW, and step sizes that change with time."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from deepccg.core import Diverged, all_finite
from deepccg.learners.per_parameter import PerParameter
from deepccg.learners.recipe import RecipeConfig

BETAS = (0.9, 0.999)  # Adam: decay of the mean gradient and of the mean square
EPSILON = 1e-8


class StatefulOptimiser(PerParameter):
    """The optimiser that a recipe names, for parameters that may get further rows.

    The rules are those of ``torch.optim``. Rows that come later begin as new parameters do: Adam
    corrects the bias of their averages by their own age.
    """

    def __init__(
        self, lr: float, recipe: RecipeConfig, parameters: Callable[[], Sequence[Tensor]]
    ) -> None:
        adam = recipe.optimiser != "sgd"
        kinds = ("mean", "square") if adam else ("velocity",) if recipe.momentum else ()
        super().__init__("optimiser", kinds, parameters)
        self.lr, self.recipe, self.adam = lr, recipe, adam

    @torch.no_grad()
    def step(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor], number: int) -> None:
        """Move ``parameters`` in place.

        Raises:
            Diverged: If step ``number`` leaves a parameter that is not finite.
        """
        self.begin_step()
        lr, decay = self.lr * self.schedule(self.steps), self.recipe.weight_decay
        for i, (parameter, gradient) in enumerate(zip(parameters, gradients, strict=True)):
            if self.recipe.optimiser == "adamw":
                parameter.mul_(1 - lr * decay)
            elif decay:
                gradient = gradient + decay * parameter
            direction = self._adam(i, gradient) if self.adam else self._momentum(i, gradient)
            parameter.sub_(direction, alpha=lr)
        if not all_finite(parameters):
            raise Diverged(f"the weights are not finite after step {number}: try a smaller lr")

    def schedule(self, step: int) -> float:
        """The factor on the step size at ``step``, from 1: up to 1, then down, if so chosen."""
        warmup = self.recipe.warmup
        if step < warmup:
            return step / warmup
        if self.recipe.schedule == "inverse-sqrt":
            return math.sqrt(max(warmup, 1) / step)
        return 1.0

    def _momentum(self, index: int, gradient: Tensor) -> Tensor:
        if not self.recipe.momentum:
            return gradient
        return self.kept["velocity"][index].mul_(self.recipe.momentum).add_(gradient)

    def _adam(self, index: int, gradient: Tensor) -> Tensor:
        mean, square = self.kept["mean"][index], self.kept["square"][index]
        age = self.age_of_rows(index, gradient.ndim)
        mean.lerp_(gradient, 1 - BETAS[0])
        square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        unbiased = [(1 - beta**age).to(mean.dtype) for beta in BETAS]
        return (mean / unbiased[0]) / ((square / unbiased[1]).sqrt_().add_(EPSILON))
