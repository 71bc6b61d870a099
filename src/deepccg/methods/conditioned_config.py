"""Fields of the methods whose classifier is derived from memory."""

from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveFloat

from deepccg.core import Config
from deepccg.methods.losses import ReplayReduction
from deepccg.methods.outputs import Mask


class ConditionedConfig(Config):
    """Fields of every method that conditions on memory."""

    lr: PositiveFloat = Field(0.1, description="step size of the embedding")
    replay: NonNegativeInt = Field(10, description="stored examples replayed per step, r")
    replay_draw: Literal["half", "literal"] = Field(
        "half",
        description="half: at most half of memory, and a class is never drawn entirely; "
        "literal: r examples whatever is left to condition on",
    )
    replay_sampling: Literal["uniform", "balanced"] = Field(
        "uniform", description="every stored example, or every stored class, equally likely"
    )
    reduction: ReplayReduction = Field(
        "mean",
        description="over the terms of a step: mean, or sum as printed; means: mean over the "
        "batch's and mean over the replay's, added",
    )
    train_mask: Mask = Field(
        "task", description="classes an incoming example is compared with: task, seen or all"
    )
    replay_mask: Mask = Field(
        "seen", description="classes a replayed example is compared with: its own task, seen or all"
    )
    normalise: bool = Field(False, description="embeddings of unit length before scaling")
    mean_gradient: bool = Field(False, description="gradient also through the memory's means")
