"""Dark experience replay with labels: stored logits are matched, stored labels are learned."""

from typing import Literal

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt
from torch import Tensor

from deepccg.core import Batch, StepInfo
from deepccg.learners.class_table import ReplayMask, TrainMask
from deepccg.learners.heads import HeadLearner, masked_cross_entropy
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.state import Column
from deepccg.memory import draw_uniform, offer_to_reservoir


class DERPPConfig(RecipeConfig):
    """Fields of DER++."""

    replay: NonNegativeInt = Field(10, description="stored examples of each of the two draws")
    alpha: NonNegativeFloat = Field(
        0.5, description="weight of the distance to the stored logits; 0 draws nothing for it"
    )
    beta: NonNegativeFloat = Field(
        1.0, description="weight of the replayed cross entropy; 0 draws nothing for it"
    )
    distil: Literal["all", "task"] = Field(
        "all", description="logits that are matched: all stored ones, or those of the own task"
    )
    shared_draw: bool = Field(
        False, description="one draw for both terms: half the replayed examples"
    )
    train_mask: TrainMask = "task"
    replay_mask: ReplayMask = "task"


class DERPP(HeadLearner[DERPPConfig]):
    """DER++: theta <- theta - lr grad [ mean_B CE + alpha MSE(o(R'), u) + beta mean_R'' CE ].

    R' and R'' are independent uniform draws from the memory as it was before the batch. u are the
    raw logits of an example in the forward that trained on it, before that step; they never change.
    MSE is the mean over examples of each one's mean over the outputs that existed when it was
    stored: outputs added later have no stored value to match. The memory is a reservoir.

    Reference: Buzzega et al., "Dark Experience for General Continual Learning: a Strong, Simple
    Baseline", NeurIPS 2020; the row "DER++" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = DERPPConfig

    def learn(self, batch: Batch) -> StepInfo:
        """Two replays, one step on all three terms, then offer batch and logits to memory."""
        x, y, task_idx = self.begin_step(batch)
        self.memory.widen("logits", len(self.class_table))
        for _ in self.repeats():
            replay, distilled = self.draw_replays()
            slots = replay if distilled is replay else torch.cat([replay, distilled])
            raw = self.logits_with_replay(x, slots)
            loss = self.cross_entropy(raw, y, task_idx, replay)
            if len(distilled):  # the last rows, shared or not
                loss = loss + self.config.alpha * self.distance(raw[-len(distilled) :], distilled)
            value = self.optimise(loss)
        self.store(x, y, task_idx, raw[: len(y)].detach())
        return self.end_step(value, len(torch.unique(slots)))

    def draw_replays(self) -> tuple[Tensor, Tensor]:
        """Slots of R'', for the cross entropy, and R', for the distance; one tensor if shared."""
        replay = self._draw(self.config.beta)
        if self.config.shared_draw and self.config.alpha > 0 and self.config.beta > 0:
            return replay, replay
        return replay, self._draw(self.config.alpha)

    def cross_entropy(self, raw: Tensor, y: Tensor, task_idx: Tensor, replay: Tensor) -> Tensor:
        """Cross entropy of the batch plus ``beta`` times that of R'', the first rows of ``raw``."""
        labels = self.replay_labels(y, replay)
        terms = masked_cross_entropy(raw[: len(labels)], labels, self.masks(task_idx, replay))
        loss = terms[: len(y)].mean()
        return loss + self.config.beta * terms[len(y) :].mean() if len(replay) else loss

    def distance(self, raw: Tensor, slots: Tensor) -> Tensor:
        """Mean squared difference of ``raw [R, C]`` and the logits stored at ``slots``."""
        matched = self.matched(slots)
        drift = (raw - self.memory["logits"][slots]).masked_fill(~matched, 0.0)
        return (drift.square().sum(dim=1) / matched.sum(dim=1)).mean()

    def matched(self, slots: Tensor) -> Tensor:
        """Which logits of stored examples are matched, ``[R, C]``."""
        columns = torch.arange(len(self.class_table), device=self.device)
        known = columns < self.memory["outputs"][slots, None]
        if self.config.distil == "task":
            known &= self.class_table.mask("task", self.memory.task[slots]).to(self.device)
        return known

    def store(self, x: Tensor, y: Tensor, task_idx: Tensor, logits: Tensor) -> None:
        """Offer the batch to the reservoir, each example with its logits and how many they are."""
        seen = int(self.class_table.seen.sum()) - len(y)
        extras = {"logits": logits, "outputs": torch.full_like(y, logits.shape[1])}
        offer_to_reservoir(self.memory, x, y, task_idx, seen, self.generator, None, **extras)

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """Its logits, and how many outputs there were."""
        return {"logits": ((classes,), self.dtype), "outputs": ((), torch.int64)}

    def _draw(self, weight: float) -> Tensor:
        if weight == 0 or self.config.replay == 0:
            return self.memory.y.new_zeros(0)
        return draw_uniform(self.memory.y, self.config.replay, self.generator)
