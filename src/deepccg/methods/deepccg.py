"""Deep Class-Conditional Gaussians: a classifier recomputed from memory, never learned."""

from typing import Literal, NamedTuple, Self, TypeVar

import torch
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn

from deepccg.core import Holdings, State, make_generator
from deepccg.gaussian import (
    Posterior,
    Variance,
    class_posterior,
    discounted,
    fitted_scale,
    kernels,
    leave_one_out_distances,
    log_predictive_density,
    moved_embeddings,
    squared_distances,
)
from deepccg.learners import embedding_cache
from deepccg.learners.conditioned import ConditionedConfig, ConditionedLearner, Conditioning
from deepccg.learners.selection import (
    Embedded,
    RecentErrors,
    Selection,
    SelectionConfig,
    batch_errors,
    embedded_now,
    without_rates,
)
from deepccg.learners.state import Column, GeneratorPart, ModulePart, Part
from deepccg.memory import CandidateIndex
from deepccg.memory.sampling import draw_grouped


class ClassConditionalConfig(ConditionedConfig):
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
    posterior: Literal["exact", "grouped", "lazy"] = Field(
        "exact",
        description="what a step embeds of memory: all examples of the classes it compares "
        "(exact), the same with a replay from few tasks, so that it compares few classes "
        "(grouped), or of those only few examples, the others moved along (lazy)",
    )
    replay_tasks: PositiveInt | None = Field(
        None,
        description="random tasks a replay is drawn from: by default all if exact, else 2",
    )
    refresh: PositiveInt = Field(
        4,
        description="lazy: random examples of each class compared that a step embeds anew; where "
        "a memory is selected, besides all of the batch's classes",
    )
    max_age: NonNegativeInt = Field(
        20,
        le=10**9,
        description="lazy: an example is embedded anew at the latest after so many estimates",
    )

    @property
    def groups(self) -> int | None:
        """How many tasks a replay is drawn from, if not from all."""
        if self.replay_sampling == "balanced":
            return None
        return self.replay_tasks or (None if self.posterior == "exact" else 2)

    @model_validator(mode="after")
    def _draws_once(self) -> Self:
        few = self.replay_tasks is not None or self.posterior == "grouped"
        if few and self.replay_sampling == "balanced":
            raise ValueError(
                "replay_sampling=balanced draws from all tasks, replay_tasks and posterior=grouped "
                "from few: choose one of them"
            )
        return self


class DeepCCGConfig(SelectionConfig, ClassConditionalConfig):
    """Fields of DeepCCG: classifier, loss, and what is stored."""

    first_fields = (
        "lr", "replay", "train_mask", "replay_mask", "selector", "renewal", "posterior", "quota",
    )  # fmt: skip

    selection_features: Literal["before", "after"] = Field(
        "before", description="select with embeddings from before or after the step"
    )


ConfigT = TypeVar("ConfigT", bound=ClassConditionalConfig)

ERRORS = "errors"  # the part that counts how often new examples were taken for others


class Scale(nn.Module):
    """The one learned number of ``embedding_scale=learned``: the log of the scale."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.log = nn.Parameter(torch.tensor(start).log())


class Belief(NamedTuple):
    """Where the classes lie, in the network's units, and the factor on the embedding."""

    posterior: Posterior
    scale: Tensor


class ClassConditional(ConditionedLearner[ConfigT, Belief]):
    """DeepCCG's classifier and loss, whatever is stored (Eqs. 7-9).

    The embedding is ``scale * network(x)``. There is no head: after the network moved, the
    classifier is the posterior over class means given memory under the new network.

    Attributes:
        native: Whether loss and greedy selection are computed by compiled kernels where these
            suit: the same but for rounding, and faster on small problems. Off unless it is set.
        selects: Whether what is stored of the batch's classes depends on embeddings.
    """

    native = False
    selects = True

    def set_up(self, seed: int) -> None:
        """The factor on the embedding, and what draws whom to embed anew."""
        super().set_up(seed)
        # Its own: replays and ties are then those of an exact posterior, draw for draw.
        self.refreshing = make_generator(seed, embedding_cache.DRAWS)
        self.scale = Scale(self.config.initial_scale).to(self.device, self.dtype)
        self._scale_part = ModulePart("scale", self.scale)

    def condition(self, z: Tensor, y: Tensor, scored: Tensor) -> Belief:
        """The posterior over class means (Eq. 7) and the scale."""
        del scored
        if self.native and kernels.suits_kernels(z) and not z.requires_grad:
            posterior, deviation = kernels.centred(z, y, len(self.outputs))
        else:
            posterior, deviation = class_posterior(z, y, len(self.outputs)), None
        return Belief(posterior, self._scale_of(z, y, posterior, deviation))

    def blurred(self, belief: Belief, error: Tensor) -> Belief:
        """Means that are worth fewer examples, in the units of the scaled embedding."""
        variance = error * belief.scale.detach().square() / self.dim
        return belief._replace(posterior=discounted(belief.posterior, variance))

    def _scale_of(
        self, z: Tensor, y: Tensor, posterior: Posterior, deviation: Tensor | None
    ) -> Tensor:
        if self.config.embedding_scale == "learned":
            return self.scale.log.exp()
        if self.config.embedding_scale == "fitted":
            return fitted_scale(z, y, posterior, deviation)
        return torch.tensor(self.config.embedding_scale, dtype=self.dtype, device=self.device)

    def evidence(self, mask: Tensor) -> Tensor:
        """See ``ConditionedLearner``; a scale that is fitted is fitted to all of memory."""
        fitted = self.config.embedding_scale == "fitted"
        return super().evidence(torch.ones_like(mask) if fitted else mask)

    def score(self, z: Tensor, belief: Belief) -> Tensor:
        """Squared distances to the class means, scaled, ``[B, C]``."""
        return squared_distances(z, belief.posterior.mean) * belief.scale.square()

    def masked_under(self, belief: Belief, scores: Tensor, mask: Tensor) -> Tensor:
        """Log predictive densities of the allowed classes (numerator of Eq. 8)."""
        count = belief.posterior.count
        return log_predictive_density(scores, count, mask, self.dim, self.config.variance)

    def step_terms(
        self, z: Tensor, y: Tensor, classes: Tensor, belief: Belief, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """See ``ConditionedLearner``; natively where only ``z`` wants a gradient."""
        posterior, scale = belief
        constant = not (posterior.mean.requires_grad or scale.requires_grad)
        if self.native and constant and self.config.absent == "drop" and kernels.suits_kernels(z):
            return kernels.conditional_marginal_likelihood(
                z, classes, posterior, scale, mask, self.config.variance
            )
        return super().step_terms(z, y, classes, belief, mask)

    def step_density(self, z: Tensor, y: Tensor, belief: Belief, mask: Tensor) -> Tensor:
        """As ``masked_under``; with ``absent=batch``, unknown classes are taken from the batch."""
        if self.config.absent == "drop":
            return super().step_density(z, y, belief, mask)
        distance = squared_distances(z, belief.posterior.mean)
        count = belief.posterior.count.expand_as(distance)
        distance, count = _fill_from_batch(distance, count, z, y)
        distance = distance * belief.scale.square()
        return log_predictive_density(distance, count, mask, self.dim, self.config.variance)

    def tell(self, belief: Belief) -> dict[str, float]:
        """The factor on the embedding."""
        return {"scale": float(belief.scale.detach())}

    def modules(self) -> list[nn.Module]:
        """The network, and the scale where it is learned."""
        learned = self.config.embedding_scale == "learned"
        return [self.network, self.scale] if learned else [self.network]

    def parts(self) -> dict[str, Part]:
        """No head: the classifier is derived from network and memory, with caches or without."""
        own = {**super().parts(), "scale": self._scale_part}
        if self.config.posterior == "lazy":
            own[embedding_cache.DRAWS] = GeneratorPart(self.refreshing)
        return own

    def draw_replay(self) -> Tensor:
        """See ``ConditionedLearner``; ``replay_tasks`` draws as many from few tasks."""
        groups = self.config.groups
        if groups is None:
            return super().draw_replay()
        return draw_grouped(self.memory.task, self.replay_size(), groups, self.generator)

    def embed_step(
        self, x: Tensor, replay: Tensor, rest: Tensor, changing: Tensor
    ) -> tuple[Tensor, Conditioning]:
        """See ``ConditionedLearner``; ``lazy`` embeds some of ``rest`` and estimates the others.

        Classes whose memory is reselected are embedded entirely: a selection by estimates would
        look for the errors that suit it. The replayed examples take no part in the estimates:
        nothing that a step scores is among what it is scored by.
        """
        if self.config.posterior != "lazy":
            return super().embed_step(x, replay, rest, changing)
        old, age = embedding_cache.cached(self.memory, rest, self.dim, self.dtype)
        y = self.memory.y[rest]
        due = age >= self.config.max_age
        if self.selects:
            due |= torch.isin(y, changing)
        chosen = embedding_cache.draw_refresh(y, due, self.config.refresh, self.refreshing)
        fresh, anew = super().embed_step(x, replay, rest[chosen.known], changing)
        moved = moved_embeddings(old, y, anew.z, *chosen, len(self.outputs))
        return fresh, Conditioning(moved.z, chosen.known, moved.error)

    def note_embeddings(self, z: Embedded) -> dict[str, Tensor]:
        """Cache what a step knows of memory; returns what is stored with the batch's examples."""
        if self.config.posterior != "lazy":
            return {}
        embedding_cache.keep(self.memory, z.slots, z.stored, z.known)
        return embedding_cache.fresh_columns(z.batch)

    def holdings(self) -> Holdings:
        """The memory, and the embeddings cached of it."""
        held = super().holdings()
        kinds = dict(held.bytes)
        if embedding_cache.EMBEDDING in kinds:
            kinds["cached embeddings"] = kinds.pop(embedding_cache.EMBEDDING) + kinds.pop(
                embedding_cache.AGE
            )
        return Holdings(held.examples, kinds)

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """The cached embedding, and how often in a row it was estimated."""
        del classes
        return (
            embedding_cache.columns(self.dim, self.dtype) if self.config.posterior == "lazy" else {}
        )

    def _matching_parts(self, state: State) -> dict[str, State]:
        """See ``NetworkLearner``; a cache that is not used is left out, one that misses made."""
        if self.config.posterior == "lazy":
            state = embedding_cache.with_cache(state, self.dim, self.dtype, self.refreshing)
        else:
            state = embedding_cache.without_cache(state)
        return super()._matching_parts(state)


class DeepCCG(ClassConditional[DeepCCGConfig]):
    r"""DeepCCG: class means from memory, embedding by conditional marginal likelihood.

    Each step draws a replay R from memory M, conditions the posterior over class means on M \ R
    (Eq. 7), takes one gradient step on ``-log p(y | z, own task, M \ R)`` over batch and R
    (Eqs. 8, 9), and reselects the memory of the batch's classes (Eqs. 10, 12).

    Reference: Lee & Storkey, "Approximate Bayesian Class-Conditional Models under Continuous
    Representation Shift", AISTATS 2024.
    """

    Config = DeepCCGConfig

    def set_up(self, seed: int) -> None:
        """The selection of the memory."""
        super().set_up(seed)
        self.errors = RecentErrors()
        self.selection = Selection(
            self.config, self.memory, self.outputs, self.generator, self.errors
        )

    @property
    def counts_errors(self) -> bool:
        """Whether ``renewal`` asks how often new examples were taken for others."""
        return self.config.renewal == "errors"

    def note_terms(self, y: Tensor, terms: Tensor, exist: Tensor) -> None:
        """See ``ConditionedLearner``."""
        if self.counts_errors:
            self.errors.note(*batch_errors(y, terms, exist))

    def parts(self) -> dict[str, Part]:
        """Recent errors besides, where they count."""
        own = super().parts()
        return {**own, ERRORS: self.errors} if self.counts_errors else own

    def holdings(self) -> Holdings:
        """The rates of errors besides, where they count."""
        held = super().holdings()
        if not self.counts_errors:
            return held
        return Holdings(held.examples, {**held.bytes, "rates of errors": self.errors.rates.nbytes})

    def _matching_parts(self, state: State) -> dict[str, State]:
        """See ``NetworkLearner``; a state that counted no errors begins to."""
        if self.counts_errors and ERRORS not in state.meta["parts"]:
            state = without_rates(state, ERRORS)
        return super()._matching_parts(state)

    def giving_up(self) -> list[int]:
        """Classes over their quota."""
        return self.selection.over_quota()

    def remember(self, x: Tensor, y: Tensor, rows: Tensor, z: Embedded, belief: Belief) -> None:
        """Reselect the memory of the batch's classes (Eq. 10), by what the step knows of it."""

        def embeddings(index: CandidateIndex) -> Tensor:
            if self.config.selection_features == "after":
                return embedded_now(index, self.memory, x, self._embed_now) * belief.scale
            return z.at(index.position, self.memory.size) * belief.scale

        extras = self.note_embeddings(z)
        ready = self.config.selector == "greedy" and self.config.selection_features == "before"
        natively = z if self.native and ready and kernels.suits_kernels(z.z) else None
        self.selection.reselect(x, y, rows, embeddings, natively, **extras)


def _fill_from_batch(
    distance: Tensor, count: Tensor, z: Tensor, y: Tensor
) -> tuple[Tensor, Tensor]:
    """For classes memory does not know, measure the batch against its own leave-one-out means."""
    size, n_classes = len(y), distance.shape[1]
    from_batch, batch_count = leave_one_out_distances(z[:size], y, n_classes)
    absent = count[:size] == 0
    distance = torch.cat([torch.where(absent, from_batch, distance[:size]), distance[size:]])
    count = torch.cat([torch.where(absent, batch_count, count[:size]), count[size:]])
    return distance, count
