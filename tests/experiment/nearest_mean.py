"""A learner of a user's own, written against the contract alone: the nearest class mean."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from deepccg.core import Batch, Config, Learner, State, StepInfo, Task


class NearestMeanConfig(Config):
    scale: float = 1.0
    shrink: float | None = None  # a field that is left open by default
    weights: tuple[float, ...] = (1.0, 1.0)


class NearestMean(Learner):
    """Means of pixels; the network is not used."""

    Config: ClassVar[type[Config]] = NearestMeanConfig

    def __init__(
        self,
        network: nn.Module,
        config: NearestMeanConfig | None = None,
        *,
        memory: int = 0,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        del network, classes, seed
        self.config = config or NearestMeanConfig()
        self.memory = memory
        self.sums: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(self.sums)

    def learn(self, batch: Batch) -> StepInfo:
        for x, label in zip(batch.x.double().flatten(1), batch.y.tolist(), strict=True):
            self.sums[label] = self.sums.get(label, 0.0) + x
            self.counts[label] = self.counts.get(label, 0) + 1
        return StepInfo(loss=0.0)

    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        means = torch.stack([self.sums[c] / self.counts[c] for c in self.classes])
        logits = -self.config.scale * torch.cdist(x.double().flatten(1), means)
        allowed = self.classes if task is None else task.classes
        outside = torch.tensor([label not in allowed for label in self.classes])
        return logits.masked_fill(outside, -torch.inf)

    def state_dict(self) -> State:
        tensors = {str(label): value for label, value in self.sums.items()}
        return State(tensors, {"counts": [[c, self.counts[c]] for c in self.classes]})

    def load_state_dict(self, state: State) -> None:
        self.counts = dict(state.meta["counts"])
        self.sums = {label: state.tensors[str(label)] for label in self.counts}


class NotALearner:
    """Something else."""
