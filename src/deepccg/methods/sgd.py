"""Plain SGD on the incoming batch: the floor every method must beat."""

from pydantic import Field, PositiveFloat

from deepccg.core import Batch, Config, StepInfo
from deepccg.learners.classes import Mask
from deepccg.learners.heads import HeadLearner
from deepccg.learners.losses import Reduction, masked_cross_entropy, reduce


class SGDConfig(Config):
    """Fields of SGD."""

    lr: PositiveFloat = Field(0.1, description="step size")
    reduction: Reduction = Field("mean", description="over the examples of a step: mean or sum")
    train_mask: Mask = Field(
        "task", description="classes an incoming example is compared with: task, seen or all"
    )


class SGD(HeadLearner[SGDConfig]):
    """Plain SGD: theta <- theta - lr grad mean_B CE(x, y) over the classes of the task.

    Nothing is stored, whatever the memory budget.

    Reference: the row "SGD" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = SGDConfig

    def learn(self, batch: Batch) -> StepInfo:
        """One step on the batch."""
        x, y, rows = self.receive(batch)
        mask = self.outputs.mask(self.config.train_mask, rows).to(self.device)
        terms = masked_cross_entropy(self.logits(x), y, mask)
        loss = self.descend(reduce(terms, self.config.reduction), self.config.lr)
        self.steps += 1
        return StepInfo(loss=loss)


class MultiTask(SGD):
    """Multi-Task: SGD on the pooled, shuffled data of all tasks. Offline; not an online method.

    The learner is SGD; what makes it Multi-Task is the joint stream that its presets choose
    (``stream.joint``, ``stream.epochs``): two epochs with each example masked to its own task, or,
    class-incrementally, three epochs on all data without masks.

    Reference: the row "Multi-Task" of Lee & Storkey, AISTATS 2024, Table 1.
    """
