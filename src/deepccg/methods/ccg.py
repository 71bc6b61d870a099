"""CCG: class-conditional Gaussians in closed form, on features that do not shift."""

import copy
import math
from collections.abc import Callable
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, PositiveFloat, model_validator
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    Diverged,
    InputError,
    MemoryUsage,
    State,
    StateMismatch,
    StepInfo,
    Task,
    has_finite_squares,
)
from deepccg.core import Config as MethodConfig
from deepccg.gaussian import ClassStatistics, RunningClassifier
from deepccg.learners.base import PREDICTED_AT_ONCE, NetworkLearner
from deepccg.learners.half_lives import HalfLifeMixture
from deepccg.learners.readout import combine
from deepccg.learners.state import Stateful
from deepccg.methods.ccg_changes import (
    WEIGHT,
    forget_class,
    merge_into,
    take_out,
    waiting_weight,
)
from deepccg.networks import FixedFeatures, map_in_chunks, unfitted_features

PriorStrength = Annotated[
    PositiveFloat | Literal["marginal-likelihood"],
    Field(
        description="how many examples the prior of the shared covariance, the mean variance in "
        "all directions, is worth; marginal-likelihood chooses that from the data"
    ),
]
Covariance = Annotated[
    Literal["shared", "isotropic"],
    Field(description="one matrix for all classes, or one number: then the nearest mean wins"),
]


class CCGConfig(MethodConfig):
    """Fields of CCG."""

    prior_strength: PriorStrength = 100.0
    covariance: Covariance = "shared"
    predictive: Literal["plug-in", "student-t"] = Field(
        "plug-in",
        description="density of a class: Gaussian with the covariance's posterior mean, or the "
        "posterior predictive, which counts how many examples each class has",
    )
    class_prior: Literal["uniform", "observed"] = Field(
        "uniform", description="of the allowed classes: all alike, or as frequent as they came"
    )
    half_lives: tuple[PositiveFloat, ...] = Field(
        (),
        max_length=8,
        description="for classes that change: further statistics that forget half of what they "
        "know in so many examples, each trusted as it foretells what comes",
    )

    @model_validator(mode="after")
    def _t_has_a_covariance(self) -> Self:
        if self.covariance == "isotropic" and self.predictive == "student-t":
            raise ValueError("covariance isotropic goes with predictive plug-in")
        return self


class CCG(NetworkLearner[CCGConfig]):
    r"""CCG: z | y ~ N(mu_y, Sigma) on fixed features z, updated by Bayes' rule from all examples.

    The posterior under a flat prior on the means and an inverse-Wishart prior on Sigma follows from
    counts, class means and one scatter matrix (``gaussian/shared_covariance.py``). Nothing is
    forgotten and no example is stored; the order of the stream does not matter.

    Features that are fitted to the first inputs (``networks/fixed.py``) let these wait in the
    memory, as far as the budget goes; then they are learned and dropped.

    Reference: the remark on a fixed embedding in Section 3 of Lee & Storkey, AISTATS 2024. With the
    plug-in predictive it is streaming linear discriminant analysis (Hayes & Kanan, CVPRW 2020).
    """

    Config = CCGConfig
    caches_embeddings = False  # examples wait for the features to be fitted
    forgettable = False  # whether what each class adds to the covariance is kept by itself

    def build_state(self, seed: int) -> None:
        """Statistics that forget nothing, and those of each half-life."""
        super().build_state(seed)
        self._features = [m for m in self.network.modules() if isinstance(m, FixedFeatures)]
        self.statistics = self.new_statistics()
        self.provisional: tuple[nn.Module, HalfLifeMixture] | None = None

    def new_statistics(self) -> HalfLifeMixture:
        """Statistics of no example."""
        fields, shared = self.config, self.config.covariance == "shared"
        mixture = HalfLifeMixture(
            [
                RunningClassifier(
                    ClassStatistics(self.dim, self.dtype, self.device, matrix=shared),
                    fields.prior_strength if shared else None,
                    student_t=fields.predictive == "student-t",
                    observed=fields.class_prior == "observed",
                    half_life=half_life,
                )
                for half_life in (math.inf, *fields.half_lives)
            ]
        )
        if self.forgettable:
            mixture.members[0].statistics.keep_shares()
        mixture.grow(len(self.class_table))
        return mixture

    def learn(self, batch: Batch, weight: Tensor | None = None) -> StepInfo:
        """Add the batch to the statistics, once the features are fitted.

        Args:
            batch: Examples and their labels.
            weight: How often each counts, ``[B]``, above 0; two is as if it came twice. Either all
                batches that wait have weights, or none.
        """
        x, y, task_idx = self.begin_step(batch)
        try:
            self.take(x, y, task_idx, None if weight is None else weight.to(x.device, self.dtype))
        except Diverged:
            self.class_table.uncount(batch.y.tolist())  # the statistics are without them
            raise
        return self.end_step(0.0)

    @property
    def ready(self) -> bool:
        """Whether the features are fitted, so that statistics can be taken."""
        return all(bool(features.fitted) for features in self._features)

    def fit_network(self, x: Tensor) -> None:
        """Nothing yet: the features are fitted to more than the first batch."""

    def take(self, x: Tensor, y: Tensor, task_idx: Tensor, weight: Tensor | None) -> None:
        """Learn examples, or let them wait until there are enough to fit the features to."""
        self.provisional = None
        self.statistics.grow(len(self.class_table))
        if not self.ready:
            waiting = self.memory
            if not self._enough(y, weight):
                waiting.append(x, y, task_idx, **({} if weight is None else {WEIGHT: weight}))
                return
            if waiting.size:
                x, y = torch.cat([waiting.x, x]), torch.cat([waiting.y, y])
                weight = None if weight is None else torch.cat([waiting[WEIGHT], weight])
            waiting.clear()
            super().fit_network(x)
        self._add(x, y, weight)

    def stop_waiting(self) -> None:
        """Fit the features to the examples that wait, however few, and learn these."""
        if not self.ready and self.memory.size:
            held, weight, self.provisional = self.memory, waiting_weight(self.memory), None
            x, y = held.x, held.y
            held.clear()
            super().fit_network(x)
            self._add(x, y, weight)

    def _add(self, x: Tensor, y: Tensor, weight: Tensor | None) -> None:
        z = self.embed(x)
        if not has_finite_squares(z):
            raise Diverged(f"the features of step {self.steps + 1} are too large: scale the inputs")
        self.statistics.learn(z, y, None if weight is None else weight.double())

    def _enough(self, y: Tensor, weight: Tensor | None) -> bool:
        """Whether the features can be fitted with these examples, or there is no room to wait."""
        waiting, new = self.memory, len(y) if weight is None else float(weight.sum())
        held = float(waiting[WEIGHT].sum()) if weight is not None and waiting.size else waiting.size
        wanted = max(each.first_examples for each in unfitted_features(self.network))
        return held + new >= wanted or waiting.size + len(y) > waiting.capacity

    def follow(self) -> None:
        """Make predictions after every step cheap: O(B D^2), for an inverse that is kept.

        They differ from those of a learner that was loaded from a file in rounding.
        """
        for member in self.statistics.members:
            member.follow = member.statistics.delayed = True

    def make_forgettable(self) -> None:
        """Before anything is learned: keep D (D + 1) / 2 numbers for each class, for ``forget``."""
        if self.steps:
            raise InputError("make_forgettable comes before the first example")
        self.forgettable = True
        self.clear_statistics()

    def merge(self, other: "CCG") -> None:
        """Add everything that ``other`` has learned, as if this learner had learned it, too.

        Both must have the same features, fitted to the same inputs: copy a learner, or its saved
        state, once ``ready``, and give each copy a part of the data.
        """
        if other is self or not isinstance(other, CCG):
            raise InputError("merge takes another CCG learner with the same fields")
        merge_into(self, other)

    def unlearn(self, x: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Take examples ``x [B, ...]`` of labels ``y [B]`` out again, exactly but for rounding.

        That they were learned, with these weights, is only checked while they wait: afterwards they
        are not stored. A class whose examples are all taken out is as if it had never come.
        """
        take_out(self, x, y, weight)

    def forget(self, label: int) -> None:
        """Take a class out as if it had never come, exactly but for rounding."""
        forget_class(self, label)

    def clear_statistics(self) -> None:
        """Have statistics of no example: not even rounding is left."""
        self.statistics.load(self.new_statistics().state())

    # Predictions

    @torch.no_grad()
    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        """See ``Learner``. Over all classes, if each was seen, in less time."""
        some = task is not None or len(self.class_table.arrival) < len(self.class_table)
        if some or len(x) > PREDICTED_AT_ONCE:
            return super().predict_logits(x, task)
        if not len(self.class_table):
            raise InputError("nothing was learned yet: there is no class to predict")
        scores = self.scores(self.validate_inputs(x, "x"))
        return self.masked(scores, scores.new_ones(scores.shape[1], dtype=torch.bool))

    def scores(self, x: Tensor) -> Tensor:
        """Log p(c) p(z | c) by each half-life, ``[B, C, K]``."""
        network, statistics = self._view()
        return statistics.log_joint(map_in_chunks(network, x))

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """See ``NetworkLearner``."""
        return self.statistics.mix(scores, mask).to(self.dtype)

    def representation(self, x: Tensor, task: Task | None = None) -> Tensor:
        """See ``Learner``."""
        del task
        with torch.no_grad():
            return map_in_chunks(self._view()[0], self.validate_inputs(x, "x"))

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """See ``NetworkLearner``."""
        del task
        return self._view()[1].frozen(mask)

    @torch.no_grad()
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        network, statistics = self._view()
        return combine(network, statistics.readout(), self.dtype)

    def _view(self) -> tuple[nn.Module, HalfLifeMixture]:
        """What to predict with: while examples wait, features and statistics of these alone."""
        if self.ready:
            if self.network.training:
                self.network.eval()
            return self.network, self.statistics
        if self.provisional is None:
            network, generator = copy.deepcopy(self.network), torch.Generator()
            generator.set_state(self.generator.get_state())
            for features in unfitted_features(network):
                features.fit(self.memory.x, generator)
            statistics = self.new_statistics()
            weight = waiting_weight(self.memory)
            weight = None if weight is None else weight.double()
            with torch.no_grad():
                z = map_in_chunks(network, self.memory.x)
                statistics.learn(z, self.memory.y, weight)
            self.provisional = network, statistics
        return self.provisional

    # Bytes and saved state

    @classmethod
    def largest_dim(cls, config: MethodConfig, memory_bytes: int, classes: int) -> int | None:
        """See ``Learner``: D (D + 1) / 2 numbers of the covariance, C (D + 2) of the classes."""
        if not isinstance(config, CCGConfig):
            raise InputError(f"{cls.__name__} needs a {cls.Config.__name__}")
        numbers = memory_bytes // (4 * (1 + len(config.half_lives))) - 2 * classes
        if config.covariance == "isotropic":
            return max(numbers // classes, 0)
        linear = classes + 0.5  # D^2 / 2 + linear D <= numbers
        return int(math.sqrt(max(linear**2 + 2 * numbers, 0)) - linear) if numbers > 0 else 0

    def memory_usage(self) -> MemoryUsage:
        """Statistics, an inverse that is kept, and examples that wait with what answers so far."""
        kinds = {**self.statistics.bytes(), "examples": self.memory.bytes}
        if self.provisional is not None:
            network, statistics = self.provisional
            tensors = (*network.buffers(), *network.parameters())
            held = sum(tensor.nbytes for tensor in tensors) + sum(statistics.bytes().values())
            kinds["provisional classifier"] = held  # until the next step
        return MemoryUsage(self.memory.size, {kind: size for kind, size in kinds.items() if size})

    def state_parts(self) -> dict[str, Stateful]:
        """No head: predictions are derived from the statistics."""
        return {**super().state_parts(), "statistics": self.statistics}

    def step_parts(self) -> dict[str, Stateful]:
        """See ``NetworkLearner``: once they are fitted, features stay and no example waits."""
        parts = self.state_parts()
        changing = ("outputs", "inputs", "statistics") if self.ready else parts
        return {name: parts[name] for name in changing}

    def _validate_state(self, state: State) -> dict[str, State]:
        found = super()._validate_state(state)
        count, seen = found["statistics"].tensors["count"][0].cpu(), found["outputs"].meta["seen"]
        memory, weighted = found["memory"].tensors, found["statistics"].meta.get("weighted")
        total = count + torch.bincount(memory["y"].cpu(), minlength=len(count))
        # Under weights it is only known which classes there are.
        fits = (total > 0).tolist() == [n > 0 for n in seen] if weighted else total.tolist() == seen
        if not fits:
            raise StateMismatch("the state's statistics are of other examples than were counted")
        weight = memory.get(WEIGHT)
        if weight is not None and (weight.shape != memory["y"].shape or bool((weight <= 0).any())):
            raise StateMismatch("the state's memory has weights that are none")
        return found

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self.provisional = None
        self.forgettable = self.statistics.members[0].statistics.shares is not None
