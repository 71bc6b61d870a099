"""Experience replay with a reservoir memory."""

from collections.abc import Sequence

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from deepccg.core import Batch, Config, StepInfo
from deepccg.memory import MemoryStore, reservoir_slots
from deepccg.methods.base import HeadLearner
from deepccg.methods.losses import Reduction, masked_cross_entropy, reduce
from deepccg.methods.outputs import Mask
from deepccg.methods.parts import Part
from deepccg.methods.replay import draw_uniform


class ERConfig(Config):
    """Fields of ER-reservoir."""

    lr: PositiveFloat = Field(0.1, description="step size")
    replay: NonNegativeInt = Field(10, description="stored examples replayed per step")
    reduction: Reduction = Field("mean", description="over batch and replay together: mean or sum")
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

    def __init__(
        self,
        network: nn.Module,
        config: ERConfig | None = None,
        *,
        memory: int = 0,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        super().__init__(network, config, memory=memory, classes=classes, seed=seed)
        self.memory = MemoryStore(memory)

    def learn(self, batch: Batch) -> StepInfo:
        """Replay from memory, one step on batch and replay, then insert the batch."""
        before = int(self.outputs.seen.sum())
        x, y, rows = self.receive(batch)
        replay = self.draw_replay()
        loss = self.descend(self.loss(x, y, rows, replay), self.config.lr)
        slots = reservoir_slots(before, self.memory.capacity, len(y), self.generator)
        stored = slots >= 0
        self.memory.write(slots[stored], x[stored], y[stored], rows[stored])
        self.steps += 1
        return StepInfo(loss=loss, replayed=len(replay))

    def draw_replay(self) -> Tensor:
        """Slots of R: uniform, without replacement, at most ``replay`` of them."""
        return draw_uniform(self.memory.y, self.config.replay, self.generator)

    def loss(self, x: Tensor, y: Tensor, rows: Tensor, replay: Tensor) -> Tensor:
        """Cross entropy of batch and replay in one forward, each example under its own mask."""
        train = self.outputs.mask(self.config.train_mask, rows)
        again = self.outputs.mask(self.config.replay_mask, self.memory.task[replay])
        mask = torch.cat([train, again]).to(self.device)
        inputs = torch.cat([x, self.memory.x[replay]]) if len(replay) else x
        terms = masked_cross_entropy(
            self.logits(inputs), torch.cat([y, self.memory.y[replay]]), mask
        )
        return reduce(terms, self.config.reduction)

    def parts(self) -> dict[str, Part]:
        """As for a head, and the memory. The reservoir's counter is the number of examples seen."""
        return {**super().parts(), "memory": self.memory}
