"""Supervised contrastive replay: embeddings are contrasted, classes are nearest means."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from deepccg.core import Batch, MemoryUsage, State, StepInfo, Task, derive_seed
from deepccg.learners.base import NetworkLearner, predicting
from deepccg.learners.nearest_mean import ClassMeans
from deepccg.learners.readout import combine
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.state import Stateful, StatefulModule
from deepccg.learners.strong_augmentation import Mirror, second_view
from deepccg.memory import draw_uniform, offer_to_reservoir

PROJECTED = 128  # dimensions in which examples are contrasted


class SCRConfig(RecipeConfig):
    """Fields of SCR."""

    replay: NonNegativeInt = Field(100, description="stored examples replayed per step")
    temperature: PositiveFloat = Field(0.07, description="what cosines are divided by")
    mirror: Mirror = True


class SCR(NetworkLearner[SCRConfig]):
    """SCR: a supervised contrastive loss on batch, replay and their second views; nearest means.

    With X the examples of B and R and one augmented view of each, P(i) the other rows of X of the
    class of row i, and u = g(f(x)) of length one for the network f and a projector g,

        mean over i of the mean over p in P(i) of
        -log [ exp(u_i u_p / tau) / sum_{a != i} exp(u_i u_a / tau) ].

    A class is predicted by the nearest of the normalised means of ``f(x) / |f(x)|`` over its stored
    examples; g is dropped, and a class without a stored example is not predicted. The memory is
    ER's reservoir; tasks do not enter the loss. 100 replays make a step cost eleven of ER's.

    Reference: Mai et al., "Supervised Contrastive Replay: Revisiting the Nearest Class Mean
    Classifier in Online Class-Incremental Continual Learning", CVPR Workshops 2021.
    """

    Config = SCRConfig

    def build_state(self, seed: int) -> None:
        """The projector."""
        super().build_state(seed)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "projector"))
            layers = nn.Linear(self.dim, self.dim), nn.ReLU(), nn.Linear(self.dim, PROJECTED)
        self.projector = nn.Sequential(*layers).to(self.device, self.dtype)
        self._means: ClassMeans | None = None  # derived; dropped when weights move

    def learn(self, batch: Batch) -> StepInfo:
        """One step on batch, replay and their second views; then the reservoir."""
        x, y, task_idx = self.begin_step(batch)
        self._means = None
        for _ in self.repeats():
            replay = draw_uniform(self.memory.y, self.config.replay, self.generator)
            inputs, labels = self.replay_inputs(x, replay), self.replay_labels(y, replay)
            views = second_view(inputs, self.generator, mirror=self.config.mirror)
            projected = self.project(torch.cat([inputs, views]))
            labels = torch.cat([labels, labels])
            value = self.optimise(
                supervised_contrast(projected, labels, self.config.temperature).mean()
            )
        self.update_memory(x, y, task_idx)
        return self.end_step(value, len(replay))

    def project(self, x: Tensor) -> Tensor:
        """``g(f(x))`` of length one, with gradient, ``[B, 128]``."""
        if not self.network.training:
            self.network.train()
        return F.normalize(self.projector(self.network(x)), dim=1)

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Offer the batch to the reservoir, whose counter is the number of examples seen."""
        seen = int(self.class_table.seen.sum()) - len(y)
        offer_to_reservoir(self.memory, x, y, task_idx, seen, self.generator)

    def trainable_modules(self) -> list[nn.Module]:
        """Network and projector."""
        return [self.network, self.projector]

    def scores(self, x: Tensor) -> Tensor:
        """Minus the squared distance to each mean; -inf for classes without one, ``[B, C]``."""
        return self.means().scores(self.embed(x))

    @predicting
    def means(self) -> ClassMeans:
        """The mean of each class under the present network."""
        if self._means is None:
            self._means = self._means_of(torch.arange(self.memory.size, device=self.device))
        return self._means

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """The means of the allowed classes."""
        del task
        return self._means_of(mask[self.memory.y].nonzero().flatten()).scores

    @predicting
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        return combine(
            self.predicting_embedding(), self.means().readout(), self.dtype, normalise=True
        )

    def _means_of(self, slots: Tensor) -> ClassMeans:
        none = torch.zeros(0, self.dim, dtype=self.dtype, device=self.device)
        z = self.embed(self.memory.x[slots]) if len(slots) else none
        return ClassMeans.of(z, self.memory.y[slots], len(self.class_table))

    def memory_usage(self) -> MemoryUsage:
        """The memory, and the projector."""
        held = super().memory_usage()
        size = sum(parameter.nbytes for parameter in self.projector.parameters())
        return MemoryUsage(held.examples, {**held.bytes, "projector": size})

    def state_parts(self) -> dict[str, Stateful]:
        """What every learner saves, and the projector."""
        return {**super().state_parts(), "projector": StatefulModule("projector", self.projector)}

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._means = None


def supervised_contrast(u: Tensor, y: Tensor, temperature: float) -> Tensor:
    """The contrastive loss of each row of ``u [N, K]``, of labels ``y [N]``; each has a partner."""
    itself = torch.eye(len(y), dtype=torch.bool, device=y.device)
    logits = (u @ u.T / temperature).masked_fill(itself, -math.inf)
    partner = (y[:, None] == y) & ~itself
    terms = logits.log_softmax(dim=1).masked_fill(~partner, 0.0)
    return -terms.sum(dim=1) / partner.sum(dim=1)
