"""Every reading the paper leaves open, as a field."""

from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from deepccg.core import Config
from deepccg.gaussian import LassoConfig, Variance
from deepccg.methods.losses import Reduction
from deepccg.methods.outputs import Mask


class DeepCCGConfig(Config):
    """Fields of DeepCCG; how the defaults were chosen: docs/papers.md."""

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
    reduction: Reduction = Field(
        "mean", description="over the terms of a step: mean, or sum as printed"
    )
    train_mask: Mask = Field(
        "task", description="classes an incoming example is compared with: task, seen or all"
    )
    replay_mask: Mask = Field(
        "seen", description="classes a replayed example is compared with: its own task, seen or all"
    )
    variance: Variance = Field(
        "shared",
        description="predictive variance: one value for all classes (appendix), or 1 + 1/n_c "
        "per class with its normaliser (Eq. 8)",
    )
    embedding_scale: PositiveFloat | Literal["fitted", "learned"] = Field(
        "fitted",
        description="factor on the embedding (within-class standard deviation 1/scale): a number, "
        "fitted from the memory's spread, or learned by the loss",
    )
    initial_scale: PositiveFloat = Field(2.0, description="where a learned scale starts")
    normalise: bool = Field(False, description="embeddings of unit length before scaling")
    mean_gradient: bool = Field(False, description="gradient also through the memory's means")
    absent: Literal["drop", "batch"] = Field(
        "drop",
        description="classes without a stored example: left out, or their leave-one-out mean "
        "in the batch is used",
    )
    selector: Literal["lasso", "greedy", "swap", "reservoir", "random"] = Field(
        "greedy",
        description="what is stored: lasso as published, greedy removal, greedy with swaps, "
        "a reservoir per class, or a random subset per class",
    )
    target: Literal["printed", "evidence"] = Field(
        "evidence",
        description="mean to keep: of memory and batch (printed), or weighted by the number of "
        "examples each stands for (evidence)",
    )
    selection_features: Literal["before", "after"] = Field(
        "before", description="select with embeddings from before or after the step"
    )
    quota: Literal["fixed", "growing"] = Field(
        "fixed", description="memory shared among all known classes, or among those seen so far"
    )
    lasso_penalty: NonNegativeFloat = Field(1e-3, description="lasso: lambda of Eq. 12")
    lasso_steps: NonNegativeInt = Field(100, description="lasso: gradient steps")
    lasso_lr: PositiveFloat = Field(0.1, description="lasso: step size")
    lasso_start: Literal["random", "memory", "constant"] = Field(
        "random", description="lasso: initial weights (constant ones never move)"
    )
    lasso_constraint: Literal["clip", "sigmoid"] = Field(
        "clip", description="lasso: how weights are kept between 0 and 1"
    )
    lasso_normalise: bool = Field(
        True, description="lasso: divide embeddings by their spread, so that one step size fits"
    )

    @property
    def lasso(self) -> LassoConfig:
        """The lasso's fields together."""
        return LassoConfig(
            penalty=self.lasso_penalty,
            steps=self.lasso_steps,
            lr=self.lasso_lr,
            start=self.lasso_start,
            constraint=self.lasso_constraint,
            normalise=self.lasso_normalise,
        )
