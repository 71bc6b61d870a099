"""Maximally interfered retrieval: replay what the batch alone would harm most."""

from collections.abc import Callable, Sequence

import torch
from pydantic import Field, NonNegativeInt, PositiveInt
from torch import Tensor
from torch.func import functional_call

from deepccg.core import Batch, StepInfo
from deepccg.learners.class_table import ReplayMask, TrainMask
from deepccg.learners.heads import HeadLearner, masked_cross_entropy
from deepccg.learners.recipe import RecipeConfig
from deepccg.memory import draw_uniform
from deepccg.networks import map_in_chunks


class MIRConfig(RecipeConfig):
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
        for _ in self.repeats():
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
        after = self.losses(candidates, self.virtual_step(gradients))
        rise = after - self.losses(candidates, self.scores)
        return candidates[rise.topk(count).indices]

    @torch.no_grad()
    def losses(self, slots: Tensor, scores: Callable[[Tensor], Tensor]) -> Tensor:
        """Cross entropy ``[n]`` of stored examples, by the ``scores [n, C]`` of their inputs."""
        found, masks = scores(self.memory.x[slots]), self.masks(slots[:0], slots)
        return masked_cross_entropy(found, self.memory.y[slots], masks)

    def virtual_step(self, gradients: Sequence[Tensor]) -> Callable[[Tensor], Tensor]:
        """The scores that a plain step would lead to; weights stay, running statistics too."""
        self.network.eval()
        weights = [weight.detach() for weight in self.trainable_parameters()]
        moved = torch._foreach_sub(weights, list(gradients), alpha=self.optimiser.lr)
        ahead = dict(zip(map(id, self.trainable_parameters()), moved, strict=True))

        def scores(x: Tensor) -> Tensor:
            for module in self.trainable_modules():
                own = {k: ahead[id(w)] for k, w in module.named_parameters() if id(w) in ahead}
                x = functional_call(module, own, x)
            return x

        return lambda x: map_in_chunks(scores, x)
