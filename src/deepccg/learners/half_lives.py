"""Running classifiers of several half-lives, each trusted as it foretells what comes."""

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from deepccg.core import State, StateMismatch
from deepccg.gaussian import FrozenClassifier, PackedSymmetric, RunningClassifier, packed_size
from deepccg.learners.readout import MixtureReadout, shared_covariance_readout

# A class's record of what was foretold fades by half in so many of its examples, and one surprise
# counts no more than so many nats.
RECORD_HALF_LIFE = 20.0
LARGEST_SURPRISE = 10.0


class HalfLifeMixture:
    """K running classifiers, of which the first never forgets; one of them alone is no mixture.

    Each predicts every example before it learns it. Trust in a member, for each class, grows with
    the log probabilities it gave to the last examples of that class: a class that is absent is not
    judged.
    """

    def __init__(self, members: Sequence[RunningClassifier]) -> None:
        self.members = list(members)
        self.weighted = False  # whether examples came with weights: counts are no whole numbers
        self.record = self.members[0].statistics.count.new_zeros(len(self.members), 0)  # [K, C]

    def grow(self, classes: int) -> None:
        """Have room for so many classes."""
        for member in self.members:
            member.statistics.grow(classes)
        if missing := classes - self.record.shape[1]:
            new = self.record.new_zeros(len(self.members), missing)
            self.record = torch.cat([self.record, new], dim=1)

    def learn(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Add examples ``z [B, D]`` of classes ``y [B]``, ``weight [B]`` times, to every member."""
        self.weighted = self.weighted or weight is not None
        self._judge(z, y, weight)
        for member in self.members:
            member.add(z, y, weight)

    def _judge(self, z: Tensor, y: Tensor, weight: Tensor | None) -> None:
        """Note how well each member foretells the classes of ``z`` that it is about to learn."""
        if len(self.members) == 1:
            return
        known = self.members[0].statistics.count > 0
        judged = known[y]
        if int(known.sum()) < 2 or not bool(judged.any()):
            return
        y = y[judged]
        joint = self.log_joint(z[judged]).masked_fill(~known[:, None], -math.inf)
        foretold = joint.log_softmax(dim=1)[torch.arange(len(y)), y]  # [B, K]
        weight = None if weight is None else weight[judged]
        self.record *= 2 ** (-torch.bincount(y, weight, minlength=len(known)) / RECORD_HALF_LIFE)
        surprise = foretold.clamp(min=-LARGEST_SURPRISE)
        self.record.index_add_(1, y, (surprise if weight is None else surprise * weight[:, None]).T)

    def log_joint(self, z: Tensor) -> Tensor:
        """Log p(c) p(z | c) by each member, ``[B, C, K]``."""
        return _stacked(self.members, z)

    def mix(self, joint: Tensor, mask: Tensor) -> Tensor:
        """Logits ``[B, C]`` over the classes ``mask [C]`` from ``log_joint``."""
        return _mixed(joint, mask, self.record)

    def frozen(self, mask: Tensor) -> Callable[[Tensor], Tensor]:
        """The classifier over the classes ``mask [C]`` as it is now, ``[B, D] -> [B, C]``."""
        members, record = [member.frozen() for member in self.members], self.record.clone()
        return lambda z: _mixed(_stacked(members, z), mask, record).to(z.dtype)

    def readout(self) -> nn.Module:
        """The present classifier as a module, ``[B, D] -> [B, C]``."""
        readouts = [shared_covariance_readout(member) for member in self.members]
        if len(readouts) == 1:
            return readouts[0]
        return MixtureReadout(readouts, self.record.log_softmax(dim=0))

    def bytes(self) -> dict[str, int]:
        """Bytes that are held, by kind."""
        statistics = [member.statistics for member in self.members]
        _, *others = self.members
        return {
            "class means": sum(each.count.nbytes + each.mean.nbytes for each in statistics),
            "covariance": sum(each.scatter_bytes for each in statistics),
            "inverse": sum(member.derived_bytes for member in self.members),
            # One member's are what a linear head is to other methods.
            "further class weights": sum(member.weight_bytes for member in others),
        }

    # Saved state

    def rollback_point(self) -> Callable[[], None]:
        """Return what brings the statistics back: as ``load(state())``, in a third of the time."""
        before = [(each.statistics, each.statistics.copied(), each) for each in self.members]
        units, record = [member.unit for member in self.members], self.record.clone()
        weighted = self.weighted

        def roll_back() -> None:
            for (statistics, copied, member), unit in zip(before, units, strict=True):
                vars(statistics).update(vars(copied))
                member.unit = unit
                member.changed()
            self.record, self.weighted = record, weighted

        return roll_back

    def state(self) -> State:
        """Counts ``[K, C]``, means ``[K, C, D]``, scatter ``[K, P]``; see ``ClassStatistics``."""
        statistics = [member.statistics for member in self.members]
        matrices = [each.scatter.values for each in statistics if each.scatter is not None]
        tensors = {
            "count": torch.stack([each.count for each in statistics]),
            "mean": torch.stack([each.mean for each in statistics]),
            "scatter": torch.stack(matrices) if matrices else statistics[0].mean.new_empty(0),
            "trace": torch.stack([each.trace for each in statistics]),
            "unit": self.record.new_tensor([member.unit for member in self.members]),
            "record": self.record.clone(),
        }
        if statistics[0].shares is not None:
            none = statistics[0].mean.new_empty(0, packed_size(statistics[0].dim))
            tensors["shares"] = torch.cat([none, *(s.values[None] for s in statistics[0].shares)])
        return State(tensors, {"weighted": True} if self.weighted else {})

    def check(self, state: State) -> None:
        """Same names, precision and shapes but for the number of classes; no count below 0."""
        given, own = state.tensors, self.members[0].statistics
        members, classes = len(self.members), given["count"].shape[1]
        matrix = [members, packed_size(own.dim)] if self._has_matrix(given) else [0]
        wanted = {
            "count": ([members, classes], torch.float64),
            "mean": ([members, classes, own.dim], own.mean.dtype),
            "scatter": (matrix, own.mean.dtype),
            "trace": ([members], torch.float64),
            "unit": ([members], torch.float64),
            "record": ([members, classes], torch.float64),
        }
        if "shares" in given:  # where classes can be forgotten
            wanted["shares"] = ([classes, packed_size(own.dim)], own.mean.dtype)
        found = {name: (list(tensor.shape), tensor.dtype) for name, tensor in given.items()}
        if found != wanted:
            raise StateMismatch(f"the state's statistics are {found}, this learner's {wanted}")
        if bool((given["count"] < 0).any()) or bool((given["unit"] <= 0).any()):
            raise StateMismatch("the state's statistics have counts below 0")

    def load(self, state: State) -> None:
        """Take over what ``state`` says."""
        tensors = state.tensors
        for k, member in enumerate(self.members):
            statistics = member.statistics
            statistics.count = tensors["count"][k].clone()
            statistics.mean = tensors["mean"][k].clone()
            statistics.trace = tensors["trace"][k].clone()
            statistics.scatter = None
            if self._has_matrix(tensors):
                statistics.scatter = PackedSymmetric(tensors["scatter"][k].clone())
            member.unit = float(tensors["unit"][k])
            member.changed()
        shares = [PackedSymmetric(share.clone()) for share in tensors.get("shares", ())]
        self.members[0].statistics.shares = shares if "shares" in tensors else None
        self.record = tensors["record"].clone()
        self.weighted = bool(state.meta.get("weighted"))

    def _has_matrix(self, tensors: Mapping[str, Tensor]) -> bool:
        """Whether a scatter matrix is kept, and something was added to it."""
        return self.members[0].statistics.matrix and bool((tensors["count"] > 0).any())


def _stacked(members: Sequence[RunningClassifier | FrozenClassifier], z: Tensor) -> Tensor:
    """Log p(c) p(z | c) by each member, ``[B, C, K]``."""
    if len(members) == 1:
        return members[0].log_joint(z).unsqueeze(2)
    return torch.stack([member.log_joint(z) for member in members], dim=2)


def _mixed(joint: Tensor, mask: Tensor, record: Tensor) -> Tensor:
    """Logits ``[B, C]``: the members' probabilities, averaged as they are trusted."""
    if not bool(mask.any()):
        return joint.new_full(joint.shape[:2], -math.inf)
    log_prob = joint.masked_fill(~mask[:, None], -math.inf).log_softmax(dim=1)
    if len(record) == 1:
        return log_prob[:, :, 0]
    trust = record.log_softmax(dim=0).T  # [C, K]
    return torch.logsumexp(log_prob + trust, dim=2)
