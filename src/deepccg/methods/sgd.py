"""Plain SGD on the incoming batch: the floor every method must beat, and offline the reference."""

from pydantic import Field

from deepccg.core import Batch, StepInfo
from deepccg.learners.class_table import TrainMask
from deepccg.learners.heads import HeadLearner, masked_cross_entropy
from deepccg.learners.optimiser import OptimiserConfig, Reduction, reduce


class SGDConfig(OptimiserConfig):
    """Fields of SGD."""

    reduction: Reduction = Field("mean", description="over the examples of a step: mean or sum")
    train_mask: TrainMask = "task"


class SGD(HeadLearner[SGDConfig]):
    """Plain SGD: theta <- theta - lr grad mean_B CE(x, y) over the classes of the task.

    Nothing is stored, whatever the memory budget.

    Reference: the row "SGD" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = SGDConfig

    def learn(self, batch: Batch) -> StepInfo:
        """One step on the batch."""
        return sgd_step(self, batch)


class MultiTask(HeadLearner[SGDConfig]):
    """Multi-Task: SGD on the pooled, shuffled data of all tasks. Offline; not an online method.

    The learner is SGD; what makes it Multi-Task is the joint stream that its presets choose
    (``stream.joint``, ``stream.epochs``): two epochs with each example masked to its own task, or,
    class-incrementally, three epochs on all data without masks.

    Reference: the row "Multi-Task" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = SGDConfig

    def learn(self, batch: Batch) -> StepInfo:
        """One step on the batch."""
        return sgd_step(self, batch)


def sgd_step(learner: HeadLearner[SGDConfig], batch: Batch) -> StepInfo:
    """One step on the masked cross entropy of a batch."""
    x, y, task_idx = learner.begin_step(batch)
    mask = learner.class_table.mask(learner.config.train_mask, task_idx).to(learner.device)
    terms = masked_cross_entropy(learner.logits(x), y, mask)
    return learner.end_step(learner.optimise(reduce(terms, learner.config.reduction)))
