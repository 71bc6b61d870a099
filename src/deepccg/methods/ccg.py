"""CCG: class-conditional Gaussians in closed form, on features that do not shift."""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
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
from deepccg.gaussian import (
    ClassStatistics,
    FrozenClassifier,
    PackedSymmetric,
    RunningClassifier,
    packed_size,
)
from deepccg.learners.base import NetworkLearner
from deepccg.learners.readout import MixtureReadout, combine, shared_covariance_readout
from deepccg.learners.state import Stateful
from deepccg.networks import map_in_chunks, unfitted_features

# Under half-lives, a class's record of what was foretold fades by half in so many of its examples,
# and one surprise counts no more than so many nats.
RECORD_HALF_LIFE = 20.0
LARGEST_SURPRISE = 10.0


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

    first_fields = ("prior_strength", "half_lives")

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

    def build_state(self, seed: int) -> None:
        """Statistics that forget nothing, and those of each half-life."""
        super().build_state(seed)
        self.members = self._new_members()
        self.record = torch.zeros(len(self.members), 0, dtype=torch.float64, device=self.device)
        self._provisional: tuple[nn.Module, list[RunningClassifier]] | None = None
        self._grow()

    def learn(self, batch: Batch) -> StepInfo:
        """Add the batch to the statistics, once the features are fitted."""
        x, y, task_idx = self.begin_step(batch)
        self._grow()
        try:
            self._take(x, y, task_idx)
        except Diverged:
            self.class_table.uncount(batch.y.tolist())  # the statistics are without them
            raise
        return self.end_step(0.0)

    def follow(self) -> None:
        """Make predictions after every step cheap: O(B D^2), for an inverse that is kept.

        They differ from those of a learner that was loaded from a file in rounding.
        """
        for member in self.members:
            member.follow = True

    def merge(self, other: "CCG") -> None:
        """Add everything that ``other`` has learned, as if this learner had learned it, too.

        Both must have the same features, fitted to the same inputs: copy a learner, or its saved
        state, once ``ready``, and give each copy a part of the data.
        """
        self._require_exact("merge")
        if other is self or not isinstance(other, CCG) or other.config != self.config:
            raise InputError("merge takes another CCG learner with the same fields")
        if self.inputs.shape and other.inputs.shape and self.inputs.state() != other.inputs.state():
            raise InputError("merge takes a learner of the same kind of inputs")
        if self.ready and other.ready and not _same(self.network, other.network):
            raise InputError(
                "merge takes a learner with the same features: copy one once it is ready"
            )
        columns, tasks = self.class_table.merge(other.class_table)
        self._grow()
        waiting = [(other.memory.x, columns[other.memory.y], tasks[other.memory.task])]
        if other.ready and not self.ready:
            waiting.append((self.memory.x, self.memory.y, self.memory.task))
            self.network.load_state_dict(other.network.state_dict())
            self.memory.clear()
        self.inputs = copy.deepcopy(other.inputs) if self.inputs.shape is None else self.inputs
        self.members[0].statistics.merge(other.members[0].statistics, columns)
        self.members[0].changed()
        for x, y, task_idx in waiting:
            if len(y):
                self._take(x, y, task_idx)
        self.steps += other.steps

    def unlearn(self, x: Tensor, y: Tensor) -> None:
        """Take examples ``x [B, ...]`` of labels ``y [B]`` out again, exactly but for rounding.

        That they were learned is not checked, as they are not stored. A class whose examples are
        all taken out is as if it had never come.
        """
        self._require_exact("unlearn")
        if not self.ready:
            raise InputError(
                f"unlearn: the features are fitted after {self.memory.size} more examples"
            )
        x = self.validate_inputs(x, "x")
        columns = self.class_table.uncount(y.tolist()).to(self.device)
        self.members[0].statistics.remove(self.embed(x), columns)
        self.members[0].changed()

    def fit_network(self, x: Tensor) -> None:
        """Nothing yet: the features are fitted to more than the first batch."""

    @property
    def ready(self) -> bool:
        """Whether the features are fitted, so that statistics can be taken."""
        return next(unfitted_features(self.network), None) is None

    def _take(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Learn examples, or let them wait until there are enough to fit the features to."""
        self._provisional = None
        if not self.ready:
            wanted = max(each.first_examples for each in unfitted_features(self.network))
            if self.memory.size + len(y) < min(wanted, self.memory.capacity + 1):
                self.memory.append(x, y, task_idx)
                return
            if self.memory.size:
                x, y = torch.cat([self.memory.x, x]), torch.cat([self.memory.y, y])
            self.memory.clear()
            super().fit_network(x)
        z = self.embed(x)
        if not has_finite_squares(z):
            raise Diverged(f"the features of step {self.steps + 1} are too large: scale the inputs")
        self._judge(z, y)
        for member in self.members:
            member.add(z, y)

    def _judge(self, z: Tensor, y: Tensor) -> None:
        """Note how well each member foretells the classes of ``z`` that it is about to learn."""
        known = self.members[0].statistics.count > 0
        judged = known[y]
        if len(self.members) == 1 or int(known.sum()) < 2 or not bool(judged.any()):
            return
        y = y[judged]
        joint = _stacked(self.members, z[judged]).masked_fill(~known[:, None], -math.inf)
        foretold = joint.log_softmax(dim=1)[torch.arange(len(y)), y]  # [B, K]
        self.record *= 2 ** (-torch.bincount(y, minlength=len(known)) / RECORD_HALF_LIFE)
        self.record.index_add_(1, y, foretold.clamp(min=-LARGEST_SURPRISE).T)

    # Predictions

    def scores(self, x: Tensor) -> Tensor:
        """Log p(c) p(z | c) by each member, ``[B, C, K]``."""
        network, members = self._view()
        return _stacked(members, map_in_chunks(network, x))

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """See ``NetworkLearner``: members are mixed, each class by how well they foretold it."""
        return _mixed(scores, mask, self.record).to(self.dtype)

    def representation(self, x: Tensor, task: Task | None = None) -> Tensor:
        """See ``Learner``."""
        del task
        with torch.no_grad():
            return map_in_chunks(self._view()[0], self.validate_inputs(x, "x"))

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """See ``NetworkLearner``."""
        del task
        members, record = [member.frozen() for member in self._view()[1]], self.record.clone()

        def logits(z: Tensor) -> Tensor:
            return _mixed(_stacked(members, z), mask, record).to(z.dtype)

        return logits

    @torch.no_grad()
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        network, members = self._view()
        readouts = [shared_covariance_readout(member) for member in members]
        if len(readouts) == 1:
            return combine(network, readouts[0], self.dtype)
        trust = self.record.log_softmax(dim=0)
        return combine(network, MixtureReadout(readouts, trust), self.dtype)

    def _view(self) -> tuple[nn.Module, list[RunningClassifier]]:
        """Network and members to predict with: while examples wait, provisional ones from these."""
        if self.ready:
            if self.network.training:
                self.network.eval()
            return self.network, self.members
        if self._provisional is None:
            network, generator = copy.deepcopy(self.network), torch.Generator()
            generator.set_state(self.generator.get_state())
            for features in unfitted_features(network):
                features.fit(self.memory.x, generator)
            members = self._new_members(len(self.class_table))
            with torch.no_grad():
                z = map_in_chunks(network, self.memory.x)
            for member in members:
                member.add(z, self.memory.y)
            self._provisional = network, members
        return self._provisional

    def _new_members(self, classes: int = 0) -> list[RunningClassifier]:
        """Members that have seen nothing: one that never forgets, one for each half-life."""
        fields, members = self.config, []
        for half_life in (math.inf, *fields.half_lives):
            shared = fields.covariance == "shared"
            statistics = ClassStatistics(self.dim, self.dtype, self.device, matrix=shared)
            statistics.grow(classes)
            member = RunningClassifier(
                statistics,
                fields.prior_strength if shared else None,
                student_t=fields.predictive == "student-t",
                observed=fields.class_prior == "observed",
                half_life=half_life,
            )
            members.append(member)
        return members

    def _grow(self) -> None:
        """Have room for every class of the table."""
        classes = len(self.class_table)
        for member in self.members:
            member.statistics.grow(classes)
        if missing := classes - self.record.shape[1]:
            new = self.record.new_zeros(len(self.members), missing)
            self.record = torch.cat([self.record, new], dim=1)

    def _require_exact(self, what: str) -> None:
        if self.config.half_lives:
            raise InputError(f"{what} needs statistics that forget nothing: set half_lives to ()")

    # Saved state

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
        """Statistics, examples that wait for the features to be fitted, an inverse that is kept."""
        kinds = {
            "class means": sum(member.statistics.mean_bytes for member in self.members),
            "covariance": sum(member.statistics.scatter_bytes for member in self.members),
            "inverse": sum(member.derived_bytes for member in self.members),
            "examples": self.memory.bytes,
            "provisional classifier": self._provisional_bytes(),
        }
        return MemoryUsage(self.memory.size, {kind: size for kind, size in kinds.items() if size})

    def _provisional_bytes(self) -> int:
        """Bytes of what answers while examples wait; the next step drops it."""
        if self._provisional is None:
            return 0
        network, members = self._provisional
        features = sum(buffer.nbytes for buffer in (*network.buffers(), *network.parameters()))
        statistics = [member.statistics for member in members]
        held = sum(each.mean_bytes + each.scatter_bytes for each in statistics)
        return features + held + sum(member.derived_bytes for member in members)

    def state_parts(self) -> dict[str, Stateful]:
        """No head: predictions are derived from the statistics."""
        return {**super().state_parts(), "statistics": StatefulStatistics(self)}

    def _validate_state(self, state: State) -> dict[str, State]:
        found = super()._validate_state(state)
        count, outputs = found["statistics"].tensors["count"], found["outputs"].meta
        waiting = torch.bincount(found["memory"].tensors["y"].cpu(), minlength=count.shape[1])
        if (count[0].cpu() + waiting).tolist() != [float(n) for n in outputs["seen"]]:
            raise StateMismatch("the state's statistics are of other examples than were counted")
        return found

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._provisional = None


class StatefulStatistics:
    """The statistics of a learner's members, and their record."""

    def __init__(self, learner: CCG) -> None:
        self.learner = learner

    def state(self) -> State:
        """Counts ``[K, C]``, means ``[K, C, D]``, scatter ``[K, P]``; see ``ClassStatistics``."""
        members = self.learner.members
        statistics = [member.statistics for member in members]
        tensors = {
            "count": torch.stack([each.count for each in statistics]),
            "mean": torch.stack([each.mean for each in statistics]),
            "trace": torch.stack([each.trace for each in statistics]),
            "unit": torch.tensor([member.unit for member in members], dtype=torch.float64),
            "record": self.learner.record.clone(),
        }
        matrices = [each.scatter.values for each in statistics if each.scatter is not None]
        tensors["scatter"] = torch.stack(matrices) if matrices else statistics[0].mean.new_empty(0)
        return State(tensors, {})

    def check(self, state: State) -> None:
        """Same names, precision and shapes but for the number of classes; no count below 0."""
        learner, given = self.learner, state.tensors
        members, classes, dim = len(learner.members), given["count"].shape[1], learner.dim
        double, own = torch.float64, learner.dtype
        wanted = {
            "count": ([members, classes], double),
            "mean": ([members, classes, dim], own),
            "trace": ([members], double),
            "unit": ([members], double),
            "record": ([members, classes], double),
            "scatter": ([members, packed_size(dim)] if self._has_matrix(given) else [0], own),
        }
        found = {name: (list(tensor.shape), tensor.dtype) for name, tensor in given.items()}
        if found != wanted:
            raise StateMismatch(f"the state's statistics are {found}, this learner's {wanted}")
        if bool((given["count"] < 0).any()) or bool((given["unit"] <= 0).any()):
            raise StateMismatch("the state's statistics have counts below 0")

    def load(self, state: State) -> None:
        """Take over what ``state`` says."""
        tensors = state.tensors
        for k, member in enumerate(self.learner.members):
            statistics = member.statistics
            statistics.count = tensors["count"][k].clone()
            statistics.mean = tensors["mean"][k].clone()
            statistics.trace = tensors["trace"][k].clone()
            statistics.scatter = None
            if self._has_matrix(tensors):
                statistics.scatter = PackedSymmetric(tensors["scatter"][k].clone())
            member.unit = float(tensors["unit"][k])
            member.changed()
        self.learner.record = tensors["record"].clone()

    def _has_matrix(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether a scatter matrix is kept, and something was added to it."""
        return self.learner.config.covariance == "shared" and bool((tensors["count"] > 0).any())


def _stacked(members: Sequence[RunningClassifier | FrozenClassifier], z: Tensor) -> Tensor:
    """Log p(c) p(z | c) by each member, ``[B, C, K]``."""
    return torch.stack([member.log_joint(z) for member in members], dim=2)


def _mixed(joint: Tensor, mask: Tensor, record: Tensor) -> Tensor:
    """Logits ``[B, C]`` over the classes ``mask [C]`` from all members' scores ``[B, C, K]``.

    Probabilities of the members are averaged as they are trusted. Trust in a member, for each
    class, grows with the log probabilities it gave: ``record [K, C]``.
    """
    if not bool(mask.any()):
        return joint.new_full(joint.shape[:2], -math.inf)
    log_prob = joint.masked_fill(~mask[:, None], -math.inf).log_softmax(dim=1)
    trust = record.log_softmax(dim=0).T  # [C, K]
    return torch.logsumexp(log_prob + trust, dim=2)


def _same(network: nn.Module, other: nn.Module) -> bool:
    own, given = network.state_dict(), other.state_dict()
    return own.keys() == given.keys() and all(torch.equal(own[name], given[name]) for name in own)
