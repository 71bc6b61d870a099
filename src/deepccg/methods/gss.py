"""ER with a memory whose examples pull in different directions."""

import math

import torch
from pydantic import Field, PositiveInt
from torch import Tensor

from deepccg.core import Batch, StepInfo
from deepccg.learners.heads import HeadLearner, ReplayConfig
from deepccg.learners.per_sample_gradients import per_sample_gradients
from deepccg.learners.state import Column
from deepccg.memory import draw_uniform
from deepccg.methods.er import replay_step

FIRST_SCORE = 0.1  # of an example there is nothing to compare with
LEAST_SCORE = 1e-6  # opposite gradients: above 0, so that slots can always be drawn by score


class GSSConfig(ReplayConfig):
    """Fields of GSS."""

    compared: PositiveInt = Field(
        10, description="stored examples whose gradients a new one's is compared with"
    )
    batch_gate: bool = Field(
        False,
        description="let the batch's mean gradient decide whether a batch may replace anything, "
        "as public implementations do, instead of each example's own gradient",
    )


class GSS(HeadLearner[GSSConfig]):
    """GSS-greedy: ER whose memory prefers examples with dissimilar loss gradients.

    After the step n stored examples are drawn, with gradients G_1, ..., G_n at the new parameters,
    each under its own mask. A new example with gradient h has the score

        s = 1 + max_i cos(h, G_i)   in [0, 2].

    While there is room it is stored with s. Then it is considered if s < 1: a slot i is drawn with
    probability S_i / sum S, and the new example takes it with probability S_i / (S_i + s).
    Stored scores S are not refreshed. Where fewer than n are stored, the first examples of the
    batch complete the n for those behind them; with nothing to compare s = 0.1.

    Reference: Aljundi et al., "Gradient based sample selection for online continual learning",
    NeurIPS 2019, algorithm 2; the row "GSS" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = GSSConfig

    def learn(self, batch: Batch) -> StepInfo:
        """ER's step on batch and replay; then dissimilar examples are stored."""
        return replay_step(self, batch)

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Store what there is room for; of the others, dissimilar ones may replace similar ones."""
        if self.memory.capacity == 0:
            return
        drawn = draw_uniform(self.memory.y, self.config.compared, self.generator)
        products = self.gradient_products(x, y, task_idx, drawn)
        scores = self.scores_of(products, len(y))
        room = min(len(y), self.memory.capacity - self.memory.size)
        self.memory.append(x[:room], y[:room], task_idx[:room], score=scores[:room])
        considered = scores < 1
        if self.config.batch_gate:
            considered = (self.batch_cosines(products, len(y)) < 0).all().expand(len(y))
        for i in considered[room:].nonzero().flatten().tolist():
            one = slice(room + i, room + i + 1)
            slot = self.slot_for(scores[one])
            self.memory.write(slot, x[one], y[one], task_idx[one], score=scores[one])

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """The score it was stored with."""
        del classes
        return {"score": ((), self.dtype)}

    def gradient_products(self, x: Tensor, y: Tensor, task_idx: Tensor, drawn: Tensor) -> Tensor:
        """Inner products ``[B + n, B + n]`` of the gradients of the batch and of ``drawn``."""
        inputs, labels = self.with_stored(x, drawn), self.replay_labels(y, drawn)
        masks = self.masks(task_idx, drawn)
        gradients, _ = per_sample_gradients(self.trainable_modules(), inputs, labels, masks)
        products = torch.zeros(len(labels), len(labels), dtype=self.dtype, device=self.device)
        for gradient in gradients:
            flat = _in_memory_order(gradient).flatten(1)
            products.addmm_(flat, flat.T)
        return products

    def scores_of(self, products: Tensor, batch: int) -> Tensor:
        """Scores ``[B]`` from the ``gradient_products`` of ``batch`` examples and n drawn ones."""
        norms = products.diagonal().clamp(min=torch.finfo(products.dtype).tiny).sqrt()
        cosines = products[:batch] / (norms[:batch, None] * norms)
        drawn = len(products) - batch
        compared = torch.ones_like(cosines, dtype=torch.bool)
        compared[:, :batch] = compared[:, :batch].tril(diagonal=-1)
        compared[:, self.config.compared - drawn : batch] = False
        best = cosines.masked_fill(~compared, -math.inf).amax(dim=1)
        scores = (1 + best).clamp(LEAST_SCORE, 2.0)
        return scores.masked_fill(~compared.any(dim=1), FIRST_SCORE)

    def batch_cosines(self, products: Tensor, batch: int) -> Tensor:
        """Cosines ``[n]`` of the batch's mean gradient with the gradients of the drawn examples."""
        square = products[:batch, :batch].mean() * products.diagonal()[batch:]
        norms = square.clamp(min=torch.finfo(products.dtype).tiny).sqrt()
        return products[:batch, batch:].mean(dim=0) / norms

    def slot_for(self, score: Tensor) -> Tensor:
        """The slot ``[1]`` that an example with ``score [1]`` takes, or none ``[0]``."""
        stored = self.memory["score"]
        slot = torch.multinomial(stored.cpu(), 1, generator=self.generator).to(stored.device)
        chance = stored[slot] / (stored[slot] + score)
        return slot[torch.rand(1, generator=self.generator).to(chance) < chance]


def _in_memory_order(gradient: Tensor) -> Tensor:
    """The axes behind the first, ordered so that flattening them copies nothing."""
    order = sorted(range(1, gradient.ndim), key=gradient.stride().__getitem__, reverse=True)
    return gradient.permute(0, *order)
