"""The recipe: options of every method that replays, whatever its loss and its memory.

With their defaults they do nothing, and they are then not written down: names and files of runs
are older than they are.
"""

from collections.abc import Sequence
from typing import Any, Literal, Self

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from deepccg.core import InputError
from deepccg.learners.augment import FARTHEST
from deepccg.learners.augment import SMALLEST_SIDE as SIDE_TO_AUGMENT
from deepccg.learners.optimiser import OptimiserConfig
from deepccg.learners.views import SMALLEST_SIDE as SIDE_TO_VIEW
from deepccg.learners.views import VIEWS


class RecipeConfig(OptimiserConfig):
    """Fields of the recipe; what each costs and when it helps: docs/recipes.md."""

    views: PositiveInt = Field(
        1,
        le=len(VIEWS),
        description="views of each image whose embeddings are averaged to predict, for stored "
        "images and queries: itself, its mirror image, both moved by a pixel or two",
    )

    repeats: PositiveInt = Field(
        1,
        le=1000,
        description="optimiser steps per batch, each with a new replay; the memory takes the "
        "batch once",
    )

    augment: bool = Field(
        False,
        description="images of a step are cropped at random after a reflected border of "
        f"{FARTHEST} pixels, and mirrored half of the time: batch, replay, and what a classifier "
        "is conditioned on",
    )

    readout: Literal["own", "gaussian"] = Field(
        "own",
        description="what classifies: the method's own head or means; or, from its memory and by "
        "its network, deepccg's Gaussian classifier",
    )

    average: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="predict with an exponential average of the weights of this decay per step; "
        "0: with the weights as they are",
    )
    optimiser: Literal["sgd", "adam", "adamw"] = Field("sgd", description="rule that moves weights")
    momentum: float = Field(0.0, ge=0, lt=1, description="sgd: share of the last move kept")
    weight_decay: NonNegativeFloat = Field(0.0, description="pull of all weights towards 0")
    schedule: Literal["constant", "inverse-sqrt"] = Field(
        "constant",
        description="step size: lr throughout, or lr sqrt(warmup / step) after the warm-up",
    )
    warmup: NonNegativeInt = Field(
        0, le=10**9, description="steps in which the step size rises to lr, in proportion"
    )

    @property
    def plain_sgd(self) -> bool:
        """Whether weights move by ``lr gradient`` alone."""
        moves = self.optimiser, self.momentum, self.weight_decay, self.schedule, self.warmup
        return moves == ("sgd", 0.0, 0.0, "constant", 0)

    @model_validator(mode="after")
    def _has_one_momentum(self) -> Self:
        if self.momentum and self.optimiser != "sgd":
            raise ValueError(f"momentum is for optimiser=sgd: {self.optimiser} has its own")
        return self

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        unused = {k for k, v in self.chosen().items() if v == RecipeConfig.model_fields[k].default}
        return {k: v for k, v in fields.items() if k not in unused}

    def chosen(self) -> dict[str, Any]:
        """The fields of the recipe alone, by name."""
        own = (k for k in RecipeConfig.model_fields if k not in OptimiserConfig.model_fields)
        return {name: getattr(self, name) for name in own}

    def require_suitable(self, shape: Sequence[int]) -> None:
        """Reject inputs of a ``shape`` that the recipe cannot be followed with."""
        side = min(shape[1:]) if len(shape) == 3 else 0
        for name, wanted in (("views", SIDE_TO_VIEW), ("augment", SIDE_TO_AUGMENT)):
            default = RecipeConfig.model_fields[name].default
            if getattr(self, name) != default and side < wanted:
                raise InputError(
                    f"{name} needs images of at least {wanted} pixels a side, these inputs have "
                    f"the shape {list(shape)}: leave {name} at {str(default).lower()}"
                )
