"""ProtoCL: Gaussian prototypes with a proper prior and class counts, derived from a coreset."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from pydantic import Field, FiniteFloat, PositiveFloat
from torch import Tensor, nn

from deepccg.core import Batch, State, StepInfo, Task
from deepccg.gaussian import (
    Prototypes,
    log_class_predictive,
    log_conditional_marginal_likelihood,
    log_prototype_predictive,
    update_prototypes,
)
from deepccg.learners.base import NetworkLearner, predicting
from deepccg.learners.class_table import ReplayMask
from deepccg.learners.context import (
    Context,
    ContextConfig,
    LogParameter,
    Replay,
    context_slots,
    embed_step,
    embed_stored,
    sample_replay,
    shaped,
)
from deepccg.learners.memory_selection import Quota, Selection, SelectionConfig, StepEmbeddings
from deepccg.learners.optimiser import reduce_replay
from deepccg.learners.readout import GaussianReadout, combine
from deepccg.learners.state import Stateful, StatefulModule


class ProtoCLConfig(ContextConfig):
    """Fields of ProtoCL; what was reconstructed: docs/papers.md."""

    replay_mask: ReplayMask = "task"
    prior_mean: FiniteFloat = Field(
        0.0, description="mean of every prototype's prior, each dimension"
    )
    prior_variance: PositiveFloat = Field(1.0, description="variance of a prototype's prior")
    prior_count: PositiveFloat = Field(1.0, description="Dirichlet prior: examples of each class")
    noise: Literal["learned", "fixed"] = Field(
        "learned", description="variance around a prototype: learned by the loss, or fixed"
    )
    initial_noise: PositiveFloat = Field(
        0.25, description="where that variance starts, each dimension"
    )
    selector: Literal["reservoir", "random"] = Field(
        "reservoir",
        description="coreset: every example seen of a class equally likely (reservoir), or a "
        "random subset of stored and new ones",
    )
    quota: Quota = "fixed"


class PrototypeClassifier(NamedTuple):
    """Where the classes lie, how far examples stray, how common each class is (log, ``[C]``)."""

    prototypes: Prototypes
    noise: Tensor
    log_share: Tensor

    def class_scores(self, z: Tensor) -> Tensor:
        """Log p(y = c) + log p(z | c), ``[B, C]``; without stored examples, from the prior."""
        return self.log_share + log_prototype_predictive(z, self.prototypes, self.noise)


class ProtoCL(NetworkLearner[ProtoCLConfig]):
    r"""ProtoCL: a Bayesian generative classifier on embeddings that a coreset keeps up to date.

    Class shares are Dirichlet, prototypes mu_c ~ N(m, v I), embeddings z | y ~ N(mu_y, diag s).
    Each step conditions the prototypes on M \ R, and takes one gradient step, in the network and in
    log s, on ``-log p(y | z)`` over batch and R, each example over its own classes A:

        p(y = c | z) = (a + n_c) N(z; m_c, v_c + s) / sum over A of the same,

    with n_c the examples of class c seen before, those of the step left out. The memory is a
    class-balanced random coreset. After the network moved, prototypes are recomputed from it.

    Reference: Kessler et al., "On Sequential Bayesian Inference for Continual Learning", Entropy
    2023. Reconstructed for the online protocol from the method's published description.
    """

    Config = ProtoCLConfig

    def build_state(self, seed: int) -> None:
        """The noise of the embedding around a prototype ``[D]``, and the coreset's selection."""
        super().build_state(seed)
        start = torch.full((self.dim,), self.config.initial_noise)
        self.noise = LogParameter(start).to(self.device, self.dtype)
        coreset = SelectionConfig(selector=self.config.selector, quota=self.config.quota)
        self.selection = Selection(coreset, self.memory, self.class_table, self.generator)
        self._classifier: PrototypeClassifier | None = None  # derived; dropped by every step

    def learn(self, batch: Batch) -> StepInfo:
        """Condition on memory, step embedding and noise, offer the batch to the coreset."""
        x, y, task_idx = self.begin_step(batch)
        self._classifier = None
        for _ in self.repeats():
            replay, returned = self.sample_replay()
            mask = self.masks(task_idx, replay)  # [B + R, C]
            slots = self.context_slots(mask, replay)
            z, z_context = embed_step(self, x, replay, slots)
            context, labels = Context(slots, z_context), self.replay_labels(y, replay)
            classifier = self.condition(context, scored=labels)
            scores = classifier.class_scores(z).masked_fill(~mask, -torch.inf)
            log_prob, valid = log_conditional_marginal_likelihood(scores, labels)
            loss = 0.0
            if len(log_prob):
                known = int(valid[: len(y)].sum())
                loss = self.optimise(-reduce_replay(log_prob, known, self.config.reduction))
        self.update_memory(x, y, task_idx, context.with_step(replay, z))
        noise = float(classifier.noise.detach().mean())
        extra = {"terms": len(log_prob), "returned": returned, "noise": noise}
        return self.end_step(loss, len(replay), extra)

    def sample_replay(self) -> Replay:
        """Slots of R."""
        return sample_replay(self.memory, self.config, self.generator)

    def context_slots(self, mask: Tensor, replay: Tensor) -> Tensor:
        r"""Slots of M \ R: those of the classes compared."""
        return context_slots(self.memory, mask, replay)

    def condition(self, context: Context, scored: Tensor) -> PrototypeClassifier:
        """Prototypes given the stored examples, shares given all examples but those scored.

        Args:
            context: The stored examples.
            scored: Class columns of the examples this step scores; empty for a prediction.
        """
        noise, y = self.noise.log.exp(), self.memory.y.index_select(0, context.slots)
        shape = (len(self.class_table), self.dim)
        prior = Prototypes(
            context.z.new_full(shape, self.config.prior_mean),
            context.z.new_full(shape, self.config.prior_variance),
        )
        counts = torch.bincount(scored, minlength=shape[0])
        before = self.class_table.seen.to(scored.device) - counts
        log_share = log_class_predictive(before.to(context.z.dtype), self.config.prior_count)
        return PrototypeClassifier(update_prototypes(prior, context.z, y, noise), noise, log_share)

    @torch.no_grad()
    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor, z: StepEmbeddings) -> None:
        """Offer the batch to the coreset, which gets embeddings and uses none."""
        self.selection.reselect(x, y, task_idx, lambda i: z.at(i.position, self.memory.size))

    def scores(self, x: Tensor) -> Tensor:
        """Log p(y = c) + log p(z | c), ``[B, C]``."""
        return self.current_classifier().class_scores(shaped(self, self.embed(x)))

    @predicting
    def current_classifier(self) -> PrototypeClassifier:
        """The classifier given all of memory under the present network."""
        if self._classifier is None:
            self._classifier = self._given(torch.arange(self.memory.size, device=self.device))
        return self._classifier

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """See ``NetworkLearner``; only the allowed classes are embedded for it."""
        del task
        classifier = self._given(mask[self.memory.y].nonzero().flatten())
        return lambda z: classifier.class_scores(shaped(self, z)).masked_fill(~mask, -torch.inf)

    @predicting
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        prototypes, noise, log_share = self.current_classifier()
        variance = (prototypes.variance + noise).double()
        constant = log_share.double() - 0.5 * variance.log().sum(dim=1)
        readout = GaussianReadout(prototypes.mean, 1 / variance, constant)
        return combine(
            self.predicting_embedding(), readout, self.dtype, normalise=self.config.normalise
        )

    def _given(self, slots: Tensor) -> PrototypeClassifier:
        return self.condition(Context(slots, embed_stored(self, slots)), scored=slots[:0])

    def trainable_modules(self) -> list[nn.Module]:
        """The network, and the noise where it is learned."""
        return [self.network, self.noise] if self.config.noise == "learned" else [self.network]

    def state_parts(self) -> dict[str, Stateful]:
        """No head: the classifier is derived from network, noise, counts and memory."""
        return {**super().state_parts(), "noise": StatefulModule("noise", self.noise)}

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._classifier = None
