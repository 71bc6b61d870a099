"""Deep Class-Conditional Gaussians: a classifier recomputed from memory, never learned."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn

from deepccg.core import Batch, MemoryUsage, State, StateMismatch, StepInfo, Task
from deepccg.gaussian import (
    GaussianClassifier,
    MeansOfOthers,
    Posterior,
    Variance,
    class_posterior,
    distances_filled_from_batch,
    estimate_embeddings,
    fitted_scale,
    inflate_variance,
    kernels,
    log_conditional_marginal_likelihood,
    log_predictive_density,
    means_of_others,
    squared_distances,
)
from deepccg.learners.base import NetworkLearner, predicting
from deepccg.learners.context import (
    GENERATOR,
    Context,
    ContextConfig,
    EmbeddingCache,
    LogParameter,
    Replay,
    context_slots,
    embed_step,
    embed_stored,
    sample_replay,
    shaped,
    without_cache,
)
from deepccg.learners.error_rates import ClassErrorRates, without_rates
from deepccg.learners.memory_selection import (
    Selection,
    SelectionConfig,
    StepEmbeddings,
    embed_candidates,
)
from deepccg.learners.optimiser import reduce_replay
from deepccg.learners.readout import class_conditional_readout, combine
from deepccg.learners.state import Column, Stateful, StatefulGenerator, StatefulModule
from deepccg.memory import CandidateIndex

ERRORS = "errors"  # name of the error rates in the saved state
REPLAYED_TASKS = 1  # that a replay comes from where only a sample of each class is embedded
# Modes and fields of earlier versions, and what the fields were where they did nothing.
REMOVED_MODES = ("grouped", "lazy")
REMOVED_FIELDS = {"replay_tasks": None, "refresh": 4, "max_age": 20}


class GaussianConfig(ContextConfig):
    """Fields of DeepCCG's classifier and loss; how the defaults were chosen: docs/papers.md."""

    variance: Variance = Field(
        "shared",
        description="predictive variance: one value for all classes (appendix), or 1 + 1/n_c "
        "per class with its normaliser (Eq. 8)",
    )
    embedding_scale: PositiveFloat | Literal["fitted", "learned"] = Field(
        "fitted",
        description="factor on the embedding (within-class standard deviation 1/scale): a number, "
        "fitted from the memory's spread, or learned by the loss",
    )
    initial_scale: PositiveFloat = Field(2.0, description="where a learned scale starts")
    absent: Literal["drop", "batch"] = Field(
        "drop",
        description="classes without a stored example: left out, or their leave-one-out mean "
        "in the batch is used",
    )
    posterior: Literal["exact", "sampled", "leave-one-out"] = Field(
        "exact",
        description="what a step embeds of memory: all examples of the classes it compares "
        "(exact), or a sample of each, by which the others are moved along: beside a replay from "
        "one task, so that it compares few classes (sampled), or as the replay itself, of few "
        "classes, each example scored by all but itself (leave-one-out)",
    )
    sample: int = Field(
        4, ge=2, description="random examples of each class that a step embeds, unless exact"
    )

    @model_validator(mode="before")
    @classmethod
    def _reads_earlier_records(cls, fields: Any) -> Any:
        """Leave out removed fields that did nothing; refuse a removed mode."""
        return present_fields(fields) if isinstance(fields, dict) else fields


def present_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Recorded fields without those that are gone and did nothing.

    Raises:
        ValueError: The mode they name is gone.
    """
    if (mode := fields.get("posterior")) in REMOVED_MODES:
        raise ValueError(
            f"posterior={mode} was removed: set posterior=sampled, which embeds less, or exact"
        )
    return {
        name: value
        for name, value in fields.items()
        if name not in REMOVED_FIELDS or value != REMOVED_FIELDS[name]
    }


class DeepCCGConfig(SelectionConfig, GaussianConfig):
    """Fields of DeepCCG: classifier, loss, and what is stored."""

    first_fields = (
        "lr", "replay", "train_mask", "replay_mask", "selector", "renewal", "posterior", "quota",
    )  # fmt: skip

    selection_features: Literal["before", "after"] = Field(
        "before", description="select with embeddings from before or after the step"
    )


class DeepCCG(NetworkLearner[DeepCCGConfig]):
    r"""DeepCCG: class means from memory, embedding by conditional marginal likelihood.

    The embedding is ``z = scale * network(x)``; around its class mean it is a unit Gaussian. There
    is no head: the classifier is the posterior over class means given the memory M under the
    present network. Each step (Algorithm 1) draws a replay R from M, and

    1. conditions on the context M \ R: ``mu_c | M \ R ~ N(mean_c, 1/n_c)`` (Eq. 7);
    2. takes one gradient step on ``-log p(y | z, own task, M \ R)`` over batch and R, with
       ``p(z | c, M \ R) = N(z; mean_c, 1 + 1/n_c)`` (Eqs. 8, 9);
    3. reselects the memory of the batch's classes, so that each keeps the mean of all its
       examples as well as its quota can (Eqs. 10, 12).

    Reference: Lee & Storkey, "Approximate Bayesian Class-Conditional Models under Continuous
    Representation Shift", AISTATS 2024.

    Attributes:
        native: Whether loss and greedy selection are computed by compiled kernels where these
            suit: the same but for rounding, and faster on small problems. Off unless it is set.

    Example:
        >>> from deepccg.networks import MLP
        >>> learner = DeepCCG(MLP(features=2), memory=8, seed=0)
        >>> x = torch.tensor([[0.0, 3.0], [3.0, 0.0]]).repeat(5, 1)
        >>> step = learner.learn(Batch(x, torch.tensor([0, 1] * 5)))  # nothing stored yet: no loss
        >>> learner.predict(torch.tensor([[0.1, 2.8], [2.9, 0.2]])).tolist()
        [0, 1]
    """

    Config: ClassVar[type[GaussianConfig]] = DeepCCGConfig
    native = False

    def build_state(self, seed: int) -> None:
        """The scale of the embedding, cached embeddings, and the selection of the memory."""
        start = torch.tensor(self.config.initial_scale)
        self.log_scale = LogParameter(start).to(self.device, self.dtype)
        self._scale_state = StatefulModule("scale", self.log_scale)
        self._classifier: GaussianClassifier | None = None  # derived; dropped by every step
        self.cache: EmbeddingCache | None = None
        if self.config.posterior != "exact" and self.memory.embed is None:
            self.cache = EmbeddingCache(self.memory, self.dim, self.dtype, self.config.sample, seed)
        # Whether the replay is what class means are estimated from.
        self.leaves_one_out = self.config.posterior == "leave-one-out" and self.cache is not None
        self.error_rates: ClassErrorRates | None = None
        self.build_selection()

    def build_selection(self) -> None:
        """What decides which examples are stored."""
        if self.config.renewal == "errors":
            self.error_rates = ClassErrorRates()
        self.selection = Selection(
            self.config, self.memory, self.class_table, self.generator, self.error_rates
        )

    def learn(self, batch: Batch) -> StepInfo:
        """Condition on memory, step the embedding, reselect the memory (Algorithm 1)."""
        x, y, task_idx = self.begin_step(batch)
        self._classifier, reselected, loss = None, self.reselected_classes(y), 0.0
        for repeat in self.repeats():
            replay, returned = self.sample_replay(task_idx, y, reselected)  # R
            mask = self.masks(task_idx, replay)  # [B + R, C]
            slots = self.context_slots(mask, replay, reselected)  # M \ R
            z, context = self.embed_step(x, replay, slots)
            labels = self.replay_labels(y, replay)
            classifier = self.condition(context)  # Eq. 7
            log_prob, valid = self.log_likelihood(  # Eqs. 8, 9
                z, labels, len(y), classifier, mask, context.others
            )
            if len(log_prob):
                known = int(valid[: len(y)].sum())
                loss = self.optimise(-reduce_replay(log_prob, known, self.config.reduction))
            if self.error_rates is not None and repeat == 0:  # before the batch was learned
                self.error_rates.update(y, log_prob, valid)
        embedded = context.with_step(replay, z)
        self.update_memory(x, y, task_idx, embedded, classifier.scale)  # Eqs. 10, 12
        scale = float(classifier.scale.detach())
        extra = {"terms": len(log_prob), "returned": returned, "scale": scale}
        return self.end_step(loss, len(replay), extra)

    def sample_replay(self, task_idx: Tensor, y: Tensor, reselected: Tensor) -> Replay:
        """Slots of R: from few tasks or classes, unless the posterior is exact.

        Leaving one out, those of the batch ``y`` and of ``reselected`` classes are among them.
        """
        if self.cache is not None and self.leaves_one_out:
            if self.config.train_mask == "task":
                y = self.masks(task_idx, y[:0]).any(dim=0).nonzero().flatten()
            needed = torch.cat([y, reselected])
            return Replay(self.cache.draw_few_classes(needed, self.config, self.generator), 0)
        few = self.config.posterior == "sampled" and self.config.replay_sampling == "uniform"
        tasks = REPLAYED_TASKS if few else None
        return sample_replay(self.memory, self.config, self.generator, tasks)

    def reselected_classes(self, y: Tensor) -> Tensor:
        """Class columns whose memory is selected by embedding: the batch's, and any over quota."""
        over_quota = self.selection.over_quota()
        return torch.cat([y, y.new_tensor(over_quota)]) if over_quota else y

    def context_slots(self, mask: Tensor, replay: Tensor, reselected: Tensor) -> Tensor:
        r"""Slots of M \ R: those of the classes compared and of the classes reselected.

        Leaving one out, slots of all classes of R, with those of R.
        """
        if self.leaves_one_out:
            return torch.isin(self.memory.y, self.memory.y[replay]).nonzero().flatten()
        return context_slots(self.memory, mask, replay, reselected)

    def embed_step(self, x: Tensor, replay: Tensor, slots: Tensor) -> tuple[Tensor, Context]:
        """Embed batch and replay with gradient, and the context ``slots``, by default without.

        With ``sampled`` some of each class in the context are embedded, and the rest is estimated.
        The replayed examples take no part in the estimates: nothing that a step scores is among
        what it is scored by. Leaving one out, they are the sample.
        """
        if self.cache is None:
            z, z_context = embed_step(self, x, replay, slots)
            return z, Context(slots, z_context)
        y, cached, classes = self.memory.y[slots], self.cache.read(slots), len(self.class_table)
        leaving = self.leaves_one_out
        sampled = torch.isin(slots, replay) if leaving else self.cache.draw(y)
        z, z_sampled = embed_step(self, x, replay, slots[:0] if leaving else slots[sampled])
        if leaving:
            replayed = z[len(x) :]
            z_sampled = replayed if self.config.mean_gradient else replayed.detach()
        moved = estimate_embeddings(cached, y, z_sampled, sampled, classes)
        others = means_of_others(moved, y, sampled, classes) if leaving else None
        return z, Context(slots, moved.z, moved.error, moved.missing, others)

    def condition(self, context: Context) -> GaussianClassifier:
        """The posterior over class means (Eq. 7) and the scale, given stored examples."""
        z, y, classes = context.z, self.memory.y.index_select(0, context.slots), self.class_table
        if self.native and kernels.is_supported(z) and not z.requires_grad:
            posterior, deviation = kernels.centred(z, y, len(classes))
        else:
            posterior, deviation = class_posterior(z, y, len(classes)), None
        scale = self._scale(z, y, posterior, deviation, context.missing)
        if context.error is not None:  # of estimated means: they are worth fewer examples
            posterior = inflate_variance(posterior, self._per_dimension(context.error, scale))
        return GaussianClassifier(posterior, scale, self.config.variance)

    def _per_dimension(self, error: Tensor, scale: Tensor) -> Tensor:
        """A squared error of embeddings as a variance per dimension, in the model's units."""
        return error * scale.detach().square() / self.dim

    def _scale(
        self,
        z: Tensor,
        y: Tensor,
        posterior: Posterior,
        deviation: Tensor | None,
        missing: Tensor | None,
    ) -> Tensor:
        if self.config.embedding_scale == "learned":
            return self.log_scale.log.exp()
        if self.config.embedding_scale == "fitted":
            return fitted_scale(z, y, posterior, deviation, missing)
        return torch.tensor(self.config.embedding_scale, dtype=self.dtype, device=self.device)

    def log_likelihood(
        self,
        z: Tensor,
        labels: Tensor,
        batch: int,
        classifier: GaussianClassifier,
        mask: Tensor,
        others: MeansOfOthers | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Log conditional marginal likelihoods that exist (Eq. 9), and which of ``z`` have one.

        Args:
            z: Embeddings of batch and replay, ``[B + R, D]``.
            labels: Their class columns ``[B + R]``.
            batch: How many are the batch's, B.
            classifier: What the step is conditioned on.
            mask: Allowed classes ``[B + R, C]``.
            others: What the replayed examples are compared with in place of their class's mean.
        """
        posterior, scale, variance = classifier
        if self.config.absent == "batch" or others is not None:
            if self.config.absent == "batch":
                distance, count = distances_filled_from_batch(z, labels[:batch], posterior)
            else:
                distance = squared_distances(z, posterior.mean)
                count = posterior.count.expand_as(distance)
            if others is not None:
                own = torch.arange(batch, len(z), device=z.device), labels[batch:]
                left_out = inflate_variance(
                    Posterior(others.mean, others.count), self._per_dimension(others.error, scale)
                )
                to_others = (z[batch:] - others.mean).square().sum(dim=1)
                distance = distance.index_put(own, to_others)
                count = count.index_put(own, left_out.count)
            distance = distance * scale.square()
            density = log_predictive_density(distance, count, mask, self.dim, variance)
            return log_conditional_marginal_likelihood(density, labels)
        constant = not (posterior.mean.requires_grad or scale.requires_grad)
        if self.native and constant and kernels.is_supported(z):
            return kernels.conditional_marginal_likelihood(
                z, labels, posterior, scale, mask, variance
            )
        density = classifier.log_density(classifier.class_scores(z), mask)
        return log_conditional_marginal_likelihood(density, labels)

    @torch.no_grad()
    def update_memory(
        self, x: Tensor, y: Tensor, task_idx: Tensor, z: StepEmbeddings, scale: Tensor
    ) -> None:
        """Reselect the memory of the batch's classes (Eqs. 10, 12) by the step's embeddings."""
        after = self.config.selection_features == "after"

        def embeddings(index: CandidateIndex) -> Tensor:
            if after:
                return scale * embed_candidates(self, index, x, partial(shaped, self))
            return scale * z.at(index.position, self.memory.size)

        extras = {} if self.cache is None else self.cache.update(z)
        greedy = self.native and self.config.selector == "greedy" and not after
        natively = z if greedy and kernels.is_supported(z.z) else None
        self.selection.reselect(x, y, task_idx, embeddings, natively, **extras)

    def embed_shaped(self, x: Tensor) -> Tensor:
        """Embeddings as the classifier sees them, without gradient or scale, ``[B, D]``."""
        return shaped(self, self.embed(x))

    def scores(self, x: Tensor) -> Tensor:
        """Squared distances to the class means, scaled, ``[B, C]``."""
        return self.current_classifier().class_scores(self.embed_shaped(x))

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log predictive densities of the allowed classes."""
        return self.current_classifier().log_density(scores, mask.expand_as(scores))

    @predicting
    def current_classifier(self) -> GaussianClassifier:
        """The classifier given all of memory under the present network."""
        if self._classifier is None:
            self._classifier = self._given(torch.arange(self.memory.size, device=self.device))
        return self._classifier

    def _given(self, slots: Tensor) -> GaussianClassifier:
        return self.condition(Context(slots, embed_stored(self, slots)))

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """See ``NetworkLearner``; only what the allowed classes depend on is embedded for it."""
        del task
        # A scale that is fitted is fitted to all of memory.
        needed = torch.ones_like(mask) if self.config.embedding_scale == "fitted" else mask
        classifier = self._given(needed[self.memory.y].nonzero().flatten())

        def density(z: Tensor) -> Tensor:
            scores = classifier.class_scores(shaped(self, z))
            return classifier.log_density(scores, mask.expand_as(scores))

        return density

    @predicting
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        readout = class_conditional_readout(*self.current_classifier())
        return combine(
            self.predicting_embedding(), readout, self.dtype, normalise=self.config.normalise
        )

    def trainable_modules(self) -> list[nn.Module]:
        """The network, and the scale where it is learned."""
        learned = self.config.embedding_scale == "learned"
        return [self.network, self.log_scale] if learned else [self.network]

    def state_parts(self) -> dict[str, Stateful]:
        """No head: the classifier is derived from network and memory."""
        parts: dict[str, Stateful] = {**super().state_parts(), "scale": self._scale_state}
        if self.cache is not None:
            parts[GENERATOR] = StatefulGenerator(self.cache.generator)
        if self.error_rates is not None:
            parts[ERRORS] = self.error_rates
        return parts

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """The cached embedding."""
        del classes
        return {} if self.cache is None else self.cache.columns()

    def memory_usage(self) -> MemoryUsage:
        """The memory, the embeddings cached of it, and the error rates."""
        examples, kinds = self.memory.size, dict(super().memory_usage().bytes)
        if self.error_rates is not None:
            kinds["rates of errors"] = self.error_rates.rates.nbytes
        return MemoryUsage(examples, kinds)

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._classifier = None

    def _validate_state(self, state: State) -> dict[str, State]:
        """See ``NetworkLearner``; an unused cache is dropped, a missing one or rates are added."""
        if isinstance(saved := state.meta.get("config"), dict):
            try:
                state = State(state.tensors, {**state.meta, "config": present_fields(saved)})
            except ValueError as error:
                raise StateMismatch(f"the state cannot be continued: {error}") from None
        if self.cache is not None:
            state = self.cache.added_to(state)
        elif self.memory.embed is None:  # what a memory of fixed embeddings has stays as it is
            state = without_cache(state)
        if self.error_rates is not None and ERRORS not in state.meta["parts"]:
            state = without_rates(state, ERRORS)
        return super()._validate_state(state)
