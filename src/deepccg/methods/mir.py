"""Maximally interfered retrieval: replay what the batch alone would harm most."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor

from deepccg.core import Batch, StepInfo
from deepccg.learners.class_table import ReplayMask, TrainMask
from deepccg.learners.heads import HeadLearner, masked_cross_entropy
from deepccg.learners.optimiser import OptimiserConfig
from deepccg.memory import draw_uniform


class MIRConfig(OptimiserConfig):
    """Fields of MIR."""

    replay: NonNegativeInt = Field(10, description="stored examples replayed per step")
    candidates: PositiveInt = Field(
        50,
        description="stored examples drawn per step, of which those are replayed whose loss rises "
        "most; no more than replay: er",
    )
    train_mask: TrainMask = "seen"
    replay_mask: ReplayMask = "seen"


class MIR(HeadLearner[MIRConfig]):
    """MIR: ER that replays the stored examples whose loss a step on the batch alone raises most.

    With g the gradient of mean_B CE at theta, theta' = theta - lr g, and C candidates drawn
    uniformly from memory, R are those with the largest CE(theta', x) - CE(theta, x), each with its
    own mask. Then theta <- theta - lr [ g + grad mean_R CE ]. The memory is ER's reservoir.

    Candidates are drawn from all of memory and compared with all classes seen: no task identifier
    is needed.

    Reference: Aljundi et al., "Online Continual Learning with Maximally Interfered Retrieval",
    NeurIPS 2019.
    """

    Config = MIRConfig

    def learn(self, batch: Batch) -> StepInfo:
        """The batch's gradient, what it would harm, one step on both; then the reservoir."""
        x, y, task_idx = self.begin_step(batch)
        loss = self.loss_of(x, y, task_idx, self.memory.y.new_zeros(0))
        gradients, value = self.gradients(loss), loss.item()
        replay = self.most_interfered(gradients)
        if len(replay):
            loss = self.loss_of(x[:0], y[:0], task_idx[:0], replay)
            added = self.gradients(loss)
            gradients = [one + other for one, other in zip(gradients, added, strict=True)]
            value += loss.item()
        self.apply_gradients(gradients)
        self.update_memory(x, y, task_idx)
        return self.end_step(value, len(replay))

    def loss_of(self, x: Tensor, y: Tensor, task_idx: Tensor, replay: Tensor) -> Tensor:
        """Mean cross entropy of batch and replay, one of which is empty."""
        logits = self.logits(self.replay_inputs(x, replay))
        labels = self.replay_labels(y, replay)
        return masked_cross_entropy(logits, labels, self.masks(task_idx, replay)).mean()

    def most_interfered(self, gradients: Sequence[Tensor]) -> Tensor:
        """Slots of R: the candidates whose loss a step along ``gradients`` raises most."""
        count = self.config.replay
        drawn = max(count, self.config.candidates) if count else 0
        candidates = draw_uniform(self.memory.y, drawn, self.generator)
        if len(candidates) <= count:  # all of them, whatever their loss does
            return candidates
        before = self.losses(candidates)
        with self.virtual_step(gradients):
            rise = self.losses(candidates) - before
        return candidates[rise.topk(count).indices]

    @torch.no_grad()
    def losses(self, slots: Tensor) -> Tensor:
        """Cross entropy of each of these stored examples, ``[n]``; no statistics are moved."""
        masks = self.masks(slots[:0], slots)
        return masked_cross_entropy(self.scores(self.memory.x[slots]), self.memory.y[slots], masks)

    @contextmanager
    def virtual_step(self, gradients: Sequence[Tensor]) -> Iterator[None]:
        """Within the block weights are one plain step further; then they are what they were."""
        weights = [parameter.detach() for parameter in self.trainable_parameters()]
        kept = [weight.clone() for weight in weights]
        try:
            if weights:
                torch._foreach_sub_(weights, list(gradients), alpha=self.optimiser.lr)
            yield
        finally:
            if weights:
                torch._foreach_copy_(weights, kept)  # subtracting back would not give the same bits
