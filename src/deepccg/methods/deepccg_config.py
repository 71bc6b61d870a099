"""Every reading the paper leaves open, as a field."""

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from deepccg.gaussian import Variance
from deepccg.methods.conditioned_config import ConditionedConfig
from deepccg.methods.selection import SelectionConfig


class ClassConditionalConfig(ConditionedConfig):
    """Fields of DeepCCG's classifier and loss; how the defaults were chosen: docs/papers.md."""

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
    absent: Literal["drop", "batch"] = Field(
        "drop",
        description="classes without a stored example: left out, or their leave-one-out mean "
        "in the batch is used",
    )
    posterior: Literal["exact", "grouped", "lazy"] = Field(
        "exact",
        description="what a step embeds of memory: all examples of the classes it compares "
        "(exact), the same with a replay from few tasks, so that it compares few classes "
        "(grouped), or of those only few examples, the others moved along (lazy)",
    )
    replay_tasks: PositiveInt | None = Field(
        None,
        description="random tasks a replay is drawn from: by default all if exact, else 2",
    )
    refresh: PositiveInt = Field(
        4,
        description="lazy: random examples of each class compared that a step embeds anew; where "
        "a memory is selected, besides all of the batch's classes",
    )
    max_age: NonNegativeInt = Field(
        20,
        le=10**9,
        description="lazy: an example is embedded anew at the latest after so many estimates",
    )

    @property
    def groups(self) -> int | None:
        """How many tasks a replay is drawn from, if not from all."""
        if self.replay_sampling == "balanced":
            return None
        return self.replay_tasks or (None if self.posterior == "exact" else 2)

    @model_validator(mode="after")
    def _draws_once(self) -> Self:
        few = self.replay_tasks is not None or self.posterior == "grouped"
        if few and self.replay_sampling == "balanced":
            raise ValueError(
                "replay_sampling=balanced draws from all tasks, replay_tasks and posterior=grouped "
                "from few: choose one of them"
            )
        return self


class DeepCCGConfig(SelectionConfig, ClassConditionalConfig):
    """Fields of DeepCCG: classifier, loss, and what is stored."""

    selection_features: Literal["before", "after"] = Field(
        "before", description="select with embeddings from before or after the step"
    )
