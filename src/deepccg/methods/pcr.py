"""Proxy-based contrastive replay: a cosine head over the classes present in the step."""

import math

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from deepccg.core import Batch, StepInfo
from deepccg.learners.base import predicting
from deepccg.learners.heads import GrowingLinear, HeadLearner
from deepccg.learners.readout import LinearReadout, combine
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.strong_augmentation import Mirror, second_view
from deepccg.memory import draw_uniform


class PCRConfig(RecipeConfig):
    """Fields of PCR."""

    replay: NonNegativeInt = Field(10, description="stored examples replayed per step")
    temperature: PositiveFloat = Field(0.09, description="what cosines are divided by")
    mirror: Mirror = True


class CosineHead(GrowingLinear):
    """``[B, D] -> [B, C]``: cosines with a proxy for each class, over a temperature; no bias."""

    def __init__(self, dim: int, temperature: float) -> None:
        super().__init__(dim)
        self.temperature = temperature
        self.register_parameter("bias", None)

    def grow(self, outputs: int, generator: torch.Generator) -> bool:
        """Grow to at least ``outputs`` proxies; return whether any were added."""
        missing = outputs - len(self.weight)
        if missing <= 0:
            return False
        bound = 1 / math.sqrt(self.dim)
        drawn = torch.rand(missing, self.dim, generator=generator) * 2 * bound - bound
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), drawn.to(self.weight)]))
        return True

    def forward(self, z: Tensor) -> Tensor:
        """Cosines over the temperature."""
        return F.linear(F.normalize(z, dim=1), self.directions())

    def directions(self) -> Tensor:
        """Proxies of length one over the temperature, ``[C, D]``."""
        return F.normalize(self.weight, dim=1) / self.temperature


class PCR(HeadLearner[PCRConfig]):
    """PCR: each example is contrasted with the proxies of all labels in the step.

    Anchors are B and R and one augmented view of each. With proxies w_c and the multiset Y of the
    anchors' labels, theta <- theta - lr grad of the mean over anchors of

        -log [ exp(cos(z, w_y) / tau) / sum_{c in Y} exp(cos(z, w_c) / tau) ],

    a softmax over the classes present, each weighted by how often it occurs: classes that are
    absent get no gradient. Predictions are the cosines with all proxies. The memory is ER's
    reservoir; tasks do not enter.

    Reference: Lin et al., "PCR: Proxy-based Contrastive Replay for Online Class-Incremental
    Continual Learning", CVPR 2023.
    """

    Config = PCRConfig

    def build_head(self) -> GrowingLinear:
        """Proxies."""
        return CosineHead(self.dim, self.config.temperature)

    def learn(self, batch: Batch) -> StepInfo:
        """One step on batch, replay and their second views; then the reservoir."""
        x, y, task_idx = self.begin_step(batch)
        for _ in self.repeats():
            replay = draw_uniform(self.memory.y, self.config.replay, self.generator)
            inputs, labels = self.replay_inputs(x, replay), self.replay_labels(y, replay)
            views = second_view(inputs, self.generator, mirror=self.config.mirror)
            logits = self.logits(torch.cat([inputs, views]))
            value = self.optimise(proxy_contrast(logits, torch.cat([labels, labels])).mean())
        self.update_memory(x, y, task_idx)
        return self.end_step(value, len(replay))

    @predicting
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        assert isinstance(self.head, CosineHead)  # noqa: S101  (``build_head`` made it)
        weight = self.head.directions()
        readout = LinearReadout(weight, torch.zeros(len(weight)), torch.zeros(self.dim))
        return combine(self.predicting_embedding(), readout, self.dtype, normalise=True)


def proxy_contrast(logits: Tensor, y: Tensor) -> Tensor:
    """``-o_y + log of the sum of exp(o_c) over the labels c of all anchors``, ``[N]``.

    A label counts as often as it occurs, the anchor's own included.
    """
    times = torch.bincount(y, minlength=logits.shape[1]).to(logits.dtype)
    every = torch.logsumexp(logits + times.log(), dim=1)
    return every - logits.gather(1, y[:, None]).squeeze(1)
