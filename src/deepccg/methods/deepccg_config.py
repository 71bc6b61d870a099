"""Every reading the paper leaves open, as a field."""

from typing import Literal

from pydantic import Field, PositiveFloat

from deepccg.gaussian import Variance
from deepccg.methods.conditioned import ConditionedConfig
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


class DeepCCGConfig(SelectionConfig, ClassConditionalConfig):
    """Fields of DeepCCG: classifier, loss, and what is stored."""

    selection_features: Literal["before", "after"] = Field(
        "before", description="select with embeddings from before or after the step"
    )
