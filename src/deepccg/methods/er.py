"""Experience replay with a reservoir memory."""

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor

from deepccg.core import Batch, Config, StepInfo
from deepccg.learners.classes import Mask
from deepccg.learners.heads import HeadLearner
from deepccg.learners.losses import ReplayReduction, masked_cross_entropy, reduce_replay
from deepccg.memory import offer_to_reservoir
from deepccg.memory.sampling import draw_uniform


class ERConfig(Config):
    """Fields of ER-reservoir."""

    lr: PositiveFloat = Field(0.1, description="step size")
    replay: NonNegativeInt = Field(10, description="stored examples replayed per step")
    reduction: ReplayReduction = Field(
        "mean",
        description="over batch and replay together: mean or sum; means: mean of each, added",
    )
    train_mask: Mask = Field(
        "task", description="classes an incoming example is compared with: task, seen or all"
    )
    replay_mask: Mask = Field(
        "task", description="classes a replayed example is compared with: its own task, seen or all"
    )


class ER(HeadLearner[ERConfig]):
    """ER-reservoir: theta <- theta - lr grad mean over B and R of CE(x, y), each with its own mask.

    R is drawn uniformly without replacement from the memory as it was before the batch; the memory
    is a reservoir over all examples (Vitter's algorithm R).

    Reference: Chaudhry et al., "On Tiny Episodic Memories in Continual Learning", 2019; the row
    "ER-reservoir" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = ERConfig

    def learn(self, batch: Batch) -> StepInfo:
        """Replay from memory, one step on batch and replay, then offer the batch to memory."""
        x, y, rows = self.receive(batch)
        replay = self.draw_replay()
        loss = self.descend(self.loss(x, y, rows, replay), self.config.lr)
        self.remember(x, y, rows)
        self.steps += 1
        return StepInfo(loss=loss, replayed=len(replay))

    def draw_replay(self) -> Tensor:
        """Slots of R: uniform, without replacement, at most ``replay`` of them."""
        return draw_uniform(self.memory.y, self.config.replay, self.generator)

    def loss(self, x: Tensor, y: Tensor, rows: Tensor, replay: Tensor) -> Tensor:
        """Cross entropy of batch and replay in one forward, each example under its own mask."""
        inputs = torch.cat([x, self.memory.x[replay]]) if len(replay) else x
        labels = torch.cat([y, self.memory.y[replay]])
        terms = masked_cross_entropy(self.logits(inputs), labels, self.masks(rows, replay))
        return reduce_replay(terms, len(y), self.config.reduction)

    def masks(self, rows: Tensor, replay: Tensor) -> Tensor:
        """Classes each example of batch and replay is compared with, ``[B + R, C]``."""
        train = self.outputs.mask(self.config.train_mask, rows)
        again = self.outputs.mask(self.config.replay_mask, self.memory.task[replay])
        return torch.cat([train, again]).to(self.device)

    def remember(self, x: Tensor, y: Tensor, rows: Tensor) -> None:
        """Offer the batch to the reservoir, whose counter is the number of examples seen."""
        before = int(self.outputs.seen.sum()) - len(y)
        offer_to_reservoir(self.memory, x, y, rows, seen=before, generator=self.generator)
