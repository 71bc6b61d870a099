"""Averaged GEM: a step never increases the mean loss on examples of earlier tasks."""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor

from deepccg.core import Batch, StepInfo
from deepccg.core import Config as MethodConfig
from deepccg.learners.class_table import Mask
from deepccg.learners.heads import HeadLearner, masked_cross_entropy
from deepccg.learners.optimiser import reduce
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.state import Column
from deepccg.memory import draw_uniform, quotas_by_arrival, write_rings
from deepccg.methods.sgd import SGDConfig


class AGEMConfig(SGDConfig, RecipeConfig):
    """Fields of A-GEM."""

    reference: NonNegativeInt = Field(
        10, description="stored examples that give the reference gradient (original: 256)"
    )
    reference_from: Literal["previous", "all"] = Field(
        "previous", description="draw them from tasks other than the batch's, or from all of memory"
    )
    replay_mask: Mask = Field(
        "task", description="classes a stored example is compared with: its own task, seen or all"
    )


class AGEM(HeadLearner[AGEMConfig]):
    """A-GEM: theta <- theta - lr g~, where g~ is the vector nearest to g with g~ . g_ref >= 0.

    g is the gradient of mean_B CE, g_ref that of mean_R CE, over all parameters together, each
    example under its own mask. R is drawn uniformly from the stored examples of other tasks than
    the batch's; if there are none, the step is SGD's. So without task identifiers (``task=None``:
    one open task) the method is SGD, unless ``reference_from`` is ``all``. The memory keeps the
    last examples of each class, the budget shared equally among the known classes.

    The two gradients take a forward each: a shared graph would have to be walked through twice.

    Reference: Chaudhry et al., "Efficient Lifelong Learning with A-GEM", ICLR 2019; the row
    "A-GEM" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = AGEMConfig

    @classmethod
    def needs_tasks(cls, config: MethodConfig) -> bool:
        """See ``Learner``: yes, unless references are drawn from all of memory."""
        return isinstance(config, AGEMConfig) and config.reference_from == "previous"

    def learn(self, batch: Batch) -> StepInfo:
        """One step along the constrained gradient, then write the batch into the rings."""
        x, y, task_idx = self.begin_step(batch)
        for _ in self.repeats():
            slots = self.draw_reference(task_idx)
            inputs = self.replay_inputs(x, slots[:0])
            loss = self.masked_loss(inputs, y, task_idx, self.config.train_mask)
            gradient, violated = self.gradients(loss), False
            if len(slots):
                gradient, violated = self.constrain(gradient, self.reference_gradient(slots))
            self.apply_gradients(gradient)
        self.update_memory(x, y, task_idx)
        extra = {"violations": float(violated)}  # 1 if the step had to be changed
        return self.end_step(float(loss.detach()), len(slots), extra)

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """An example's number of arrival."""
        del classes
        return {"arrived": ((), torch.int64)}

    def draw_reference(self, task_idx: Tensor) -> Tensor:
        """Slots of R: uniform, without replacement, at most ``reference`` of them."""
        eligible = torch.ones_like(self.memory.task, dtype=torch.bool)
        if self.config.reference_from == "previous":
            eligible = ~torch.isin(self.memory.task, task_idx)
        slots = eligible.nonzero().flatten()
        return slots[draw_uniform(slots, self.config.reference, self.generator)]

    def reference_gradient(self, slots: Tensor) -> list[Tensor]:
        """The gradient of the mean loss on stored examples, for each trained parameter."""
        x = self.replay_inputs(self.memory.x[:0], slots)
        y, task_idx = self.memory.y[slots], self.memory.task[slots]
        return self.gradients(self.masked_loss(x, y, task_idx, self.config.replay_mask))

    def masked_loss(self, x: Tensor, y: Tensor, task_idx: Tensor, mask: Mask) -> Tensor:
        """Cross entropy, each example under its own mask."""
        masks = self.class_table.mask(mask, task_idx).to(self.device)
        return reduce(masked_cross_entropy(self.logits(x), y, masks), self.config.reduction)

    def constrain(
        self, gradient: Sequence[Tensor], reference: Sequence[Tensor]
    ) -> tuple[list[Tensor], bool]:
        """The nearest gradient that does not oppose the reference, and whether it is another."""
        return project(gradient, reference)

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Keep the last examples of each class; the first seen get the quotas' remainder."""
        columns = len(self.class_table)
        quota = quotas_by_arrival(self.memory.capacity, self.class_table.arrival, columns, columns)
        count = int(self.class_table.seen.sum())
        arrived = torch.arange(count - len(y), count, device=self.device)
        write_rings(self.memory, x, y, task_idx, arrived, torch.tensor(quota, device=self.device))


def project(gradient: Sequence[Tensor], reference: Sequence[Tensor]) -> tuple[list[Tensor], bool]:
    """``g - (g . g_ref / g_ref . g_ref) g_ref`` if ``g . g_ref < 0``, else g itself.

    The vectors are given in pieces. Returns the result and whether g was changed.

    >>> project([torch.tensor([1.0, -1.0])], [torch.tensor([0.0, 2.0])])
    ([tensor([1., 0.])], True)
    """
    along, length = _dot(gradient, reference), _dot(reference, reference)
    if along >= 0 or length == 0:
        return list(gradient), False
    factor = along / length
    return [g - factor * r for g, r in zip(gradient, reference, strict=True)], True


def _dot(one: Sequence[Tensor], other: Sequence[Tensor]) -> float:
    pieces = zip(one, other, strict=True)  # in double: small gradients must not vanish in squares
    products = [torch.dot(a.flatten().double(), b.flatten().double()) for a, b in pieces]
    return float(torch.stack(products).sum())
