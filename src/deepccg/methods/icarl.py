"""iCaRL: sigmoid outputs taught by the previous task's network, nearest mean of exemplars."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from deepccg.core import Batch, MemoryUsage, State, StateMismatch, StepInfo, Task
from deepccg.gaussian import Candidates, class_posterior, squared_distances
from deepccg.learners.base import predicting
from deepccg.learners.class_table import OPEN_TASK, Mask
from deepccg.learners.heads import HeadLearner, ReplayConfig
from deepccg.learners.memory_selection import Quota, Selection, SelectionConfig, embed_candidates
from deepccg.learners.optimiser import Reduction, reduce_replay
from deepccg.learners.readout import GaussianReadout, combine, only_known
from deepccg.learners.state import Stateful
from deepccg.learners.teacher import Snapshot
from deepccg.memory import herding
from deepccg.methods.er import replay_step

_COLUMNS = "classes of all tasks so far (task), classes seen, or all outputs"


class ICaRLConfig(ReplayConfig):
    """Fields of iCaRL. A sigmoid has no normaliser: a mask says which columns enter the loss."""

    train_mask: Mask = Field(
        "task", description=f"columns of an incoming example's loss: {_COLUMNS}"
    )
    replay_mask: Mask = Field(
        "task", description=f"columns of a replayed example's loss: {_COLUMNS}"
    )
    reduction_over_classes: Reduction = Field(
        "sum", description="over the columns of one example: sum, or mean (a far smaller step)"
    )
    quota: Quota = "fixed"


class HerdingSelection(Selection):
    """Keeps, of each class, the exemplars that herding picks for the mean of its candidates."""

    def select(self, candidates: Candidates) -> Tensor:
        """Which candidates to keep, ``[K, N]``."""
        return herding(candidates)


class ICaRL(HeadLearner[ICaRLConfig]):
    """iCaRL, online and with task-aware prediction.

    With q the network at the end of the previous task, and old = the classes of earlier tasks that
    are not of this one, every example of batch and replay takes a binary cross entropy per column,

        mean over B and R of sum_c BCE(sigmoid(o_c(x)), t_c),
        t_c = sigmoid(q_c(x)) for c in old, else 1[c = y].

    The memory keeps a quota per class: after each step the class's exemplars and new examples are
    herded by their normalised embeddings under the network as it is now. A class scores minus the
    squared distance to the normalised mean of its exemplars; the head only trains the network.

    Reference: Rebuffi et al., "iCaRL: Incremental Classifier and Representation Learning", CVPR
    2017, as adapted to replay by Buzzega et al., NeurIPS 2020; the row "iCaRL" of Lee & Storkey,
    AISTATS 2024, Table 1.
    """

    Config = ICaRLConfig

    def build_state(self, seed: int) -> None:
        """The network of the past tasks, and the selection of exemplars."""
        super().build_state(seed)
        self.past = Snapshot(self.network, self.head)
        rule = SelectionConfig(target="printed", quota=self.config.quota)
        self.selection = HerdingSelection(rule, self.memory, self.class_table, self.generator)
        self._means: tuple[Tensor, Tensor] | None = None  # derived; dropped when weights move

    def learn(self, batch: Batch) -> StepInfo:
        """ER's step on batch and replay with its own loss; then each class is herded."""
        self._means = None
        return replay_step(self, batch)

    def finish_task(self) -> None:
        """Keep the network as it is at the end of a task, and which classes it was taught."""
        self.past.take(self.taught_columns().nonzero().flatten().tolist())

    def taught_columns(self) -> Tensor:
        """Classes of all tasks so far, and those that came without a task, ``[C]``."""
        every_task = torch.arange(OPEN_TASK, len(self.class_table.tasks) + 1)
        return self.class_table.mask("task", every_task).any(dim=0)

    def old_columns(self) -> list[int]:
        """Classes that the network of the past teaches: those it knows outside this task."""
        current = torch.tensor([self.class_table.current or OPEN_TASK])
        own = self.class_table.mask("task", current)[0]
        return [column for column in self.past.columns if not own[column]]

    def loss(self, x: Tensor, y: Tensor, task_idx: Tensor, replay: Tensor) -> Tensor:
        """Binary cross entropies of batch and replay in one forward."""
        inputs, labels = self.replay_inputs(x, replay), self.replay_labels(y, replay)
        each = F.binary_cross_entropy_with_logits(
            self.logits(inputs), self.targets(inputs, labels), reduction="none"
        )
        columns = self.masks(task_idx, replay)
        terms = each.masked_fill(~columns, 0).sum(dim=1)
        if self.config.reduction_over_classes == "mean":
            terms = terms / columns.sum(dim=1)
        return reduce_replay(terms, len(y), self.config.reduction)

    def targets(self, x: Tensor, y: Tensor) -> Tensor:
        """What each sigmoid should say, ``[B, C]``: old classes as before, others their label."""
        targets = F.one_hot(y, len(self.class_table)).to(self.dtype)
        old = self.old_columns()
        if old and self.past.teacher is not None:
            targets[:, old] = self.past.teacher.logits(x)[:, old].sigmoid()
        return targets

    def masks(self, task_idx: Tensor, replay: Tensor) -> Tensor:
        """Columns that enter the loss of each example of batch and replay, ``[B + R, C]``."""
        train = self._columns(self.config.train_mask).expand(len(task_idx), -1)
        again = self._columns(self.config.replay_mask).expand(len(replay), -1)
        return torch.cat([train, again]).to(self.device)

    def _columns(self, kind: Mask) -> Tensor:
        if kind == "task":
            return self.taught_columns()
        return self.class_table.mask(kind, torch.tensor([OPEN_TASK]))[0]

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Herd each class of the batch, and those whose share has shrunk."""
        self.selection.reselect(
            x, y, task_idx, lambda index: embed_candidates(self, index, x, self.shaped)
        )

    def features(self, x: Tensor) -> Tensor:
        """Embeddings of length one, without gradient, ``[B, D]``."""
        return self.shaped(self.embed(x))

    def shaped(self, z: Tensor) -> Tensor:
        """Embeddings as they are compared: of length one, ``[B, D]``."""
        return F.normalize(z, dim=1)

    def scores(self, x: Tensor) -> Tensor:
        """``-|features - mean_c|^2``; -inf for classes without exemplars, ``[B, C]``."""
        return _nearness(self.features(x), *self.means())

    @predicting
    def means(self) -> tuple[Tensor, Tensor]:
        """Mean exemplar of each class under the present network, of length one; which exist."""
        if self._means is None:
            self._means = self._means_of(torch.arange(self.memory.size, device=self.device))
        return self._means

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """The mean exemplars of the allowed classes."""
        del task
        means, known = self._means_of(mask[self.memory.y].nonzero().flatten())
        return lambda z: _nearness(F.normalize(z, dim=1), means, known)

    @predicting
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        means, known = self.means()
        constant = only_known(torch.zeros(len(means)), known.cpu())
        readout = GaussianReadout(means, torch.full_like(means, 2.0), constant)
        return combine(self.predicting_embedding(), readout, self.dtype, normalise=True)

    def _means_of(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        features = self.shaped(self.embed_stored(slots))
        found = class_posterior(features, self.memory.y[slots], len(self.class_table))
        return F.normalize(found.mean, dim=1), found.count > 0

    def memory_usage(self) -> MemoryUsage:
        """The memory, and the previous task's network once there is one."""
        held = super().memory_usage()
        return MemoryUsage(held.examples, {**held.bytes, "network copy": self.past.bytes})

    def state_parts(self) -> dict[str, Stateful]:
        """What ER saves, and the network of the past."""
        return {**super().state_parts(), "past": self.past}

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._means = None

    def _validate_state(self, state: State) -> dict[str, State]:
        found = super()._validate_state(state)
        rows, classes = found["past"].meta.get("rows", 0), len(found["outputs"].meta["classes"])
        if rows > classes:
            raise StateMismatch(f"the state's copied head has {rows} rows for {classes} classes")
        return found


def _nearness(features: Tensor, means: Tensor, known: Tensor) -> Tensor:
    """``-|features - mean_c|^2``; -inf for classes without a mean, ``[B, C]``."""
    return (-squared_distances(features, means)).masked_fill(~known, -math.inf)
