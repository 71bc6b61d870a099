"""PackNet with filters: each task freezes some of the filters and builds on those before."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    InputError,
    MemoryUsage,
    State,
    StateMismatch,
    StepInfo,
    Task,
    TaskRequired,
    make_generator,
)
from deepccg.core import Config as MethodConfig
from deepccg.learners.base import NetworkLearner
from deepccg.learners.class_table import OPEN_TASK
from deepccg.learners.heads import GrowingLinear, TaskHeads, masked_cross_entropy
from deepccg.learners.optimiser import OptimiserConfig, Reduction, reduce
from deepccg.learners.state import Stateful, StatefulGenerator
from deepccg.methods.packnet_filters import (
    FREE,
    FilterOwnership,
    Score,
    filter_layers,
    filters_enabled,
)

NOT_MET = -1  # index of a task that never came


class PackNetConfig(OptimiserConfig):
    """Fields of PackNet."""

    reduction: Reduction = Field("mean", description="over the examples of a step: mean or sum")
    train_mask: Literal["task"] = Field(
        "task", description="classes an incoming example is compared with: those of its task's head"
    )
    share: float = Field(
        0.3, gt=0, le=1, description="of each layer's free filters that a task takes, at least one"
    )
    timing: Literal["half", "start", "end"] = Field(
        "half",
        description="when a task chooses its filters: after half of its batches (at its start if "
        "their number is unknown), at its start, or at its end",
    )
    score: Score = Field(
        "gamma",
        description="what makes a filter worth keeping: its norm's scale (l1 where it has none), "
        "the sum of |gradient * weight| over the task so far, or the sum of |weight|",
    )


class PackNet(NetworkLearner[PackNetConfig]):
    """PackNet (filters): what an earlier task computes never changes again, bit for bit.

    Every filter (output of a convolution or linear layer, with its norm's scale and shift) is free
    or owned by a task. Task t first trains the free filters, on top of all those owned; then, in
    each layer, it claims the ``max(1, round(share * free))`` best of them, and the others are drawn
    again and stay free; then it trains what it claimed. It is predicted with the filters owned by
    tasks 1 ... t, all others 0 before and after their norm, and with a head of its own. Where a
    layer has no free filter left the task uses those of earlier tasks.

    A task that comes back moves its head only. Batches without a task are one task more, whose head
    grows with the classes; without it a prediction without a task raises ``TaskRequired``.

    Reference: Mallya & Lazebnik, "PackNet", CVPR 2018, for weights; for filters as in the row
    "PackNet" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = PackNetConfig

    @classmethod
    def needs_tasks(cls, config: MethodConfig) -> bool:
        """See ``Learner``: a task that was not told gets no filters."""
        del config
        return True

    def build_state(self, seed: int) -> None:
        """Which filters belong to which task, and a head for each."""
        super().build_state(seed)
        self.packing = FilterOwnership(filter_layers(self.network))
        head = GrowingLinear(self.dim).to(self.device, self.dtype)
        self.heads = TaskHeads(head, make_generator(seed, "head"))

    def learn(self, batch: Batch) -> StepInfo:
        """Choose filters if it is time, then one step on those that may move and the head."""
        x, y, task_idx = self.begin_step(batch)
        if self.packing.moving == FREE and self.time_to_choose(batch.task):
            self.choose()
        loss = self.loss(x, y, int(task_idx[0]))
        gradients = self.gradients(loss)
        if self.config.score == "taylor" and self.packing.moving == FREE:
            self.packing.add_importance(self.trainable_parameters(), gradients)
        self.apply_gradients(self.permitted(gradients))
        self.packing.batches += 1
        extra = {"free_filters": self.packing.free_share()}
        return self.end_step(float(loss.detach()), extra=extra)

    def begin_step(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As ``NetworkLearner.begin_step``; the task gets its head."""
        if batch.tasks is not None:
            raise InputError("PackNet learns one task after the other, not batches of several")
        x, y, task_idx = super().begin_step(batch)
        task = int(task_idx[0])
        self.packing.start_task(task)
        allowed = self.class_table.mask("task", task_idx[:1])[0]
        self.heads.grow(task, allowed.nonzero().flatten().tolist())
        return x, y, task_idx

    def finish_task(self) -> None:
        """A task that has not chosen yet does so now; then its filters are fixed."""
        if self.packing.moving == FREE:
            self.choose()

    def time_to_choose(self, task: Task | None) -> bool:
        """Whether the present task's first phase is over."""
        if self.config.timing == "half" and task is not None and task.batches is not None:
            return self.packing.batches >= task.batches // 2
        return self.config.timing != "end"

    def choose(self) -> None:
        """The present task claims the best of the free filters."""
        scores = self.packing.scores(self.config.score)
        self.packing.claim(scores, self.config.share, self.generator)

    def permitted(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """The gradients, 0 for every entry of a filter that must not move."""
        trainable = self.packing.trainable()
        kept: list[Tensor] = []
        for parameter, gradient in zip(self.trainable_parameters(), gradients, strict=True):
            filters = trainable.get(id(parameter))
            if filters is not None:
                gradient = gradient.masked_fill(~filters.view(-1, *[1] * (gradient.ndim - 1)), 0.0)
            kept.append(gradient)
        return kept

    def loss(self, x: Tensor, y: Tensor, task: int) -> Tensor:
        """Cross entropy of a task's head on its filters."""
        self.network.train()
        with self.filters_of(task):
            z = self.network(x)
        columns = torch.tensor(self.heads.columns(task), device=self.device)
        target = (columns == y[:, None]).int().argmax(dim=1)
        logits = self.heads.logits(z, task)
        terms = masked_cross_entropy(logits, target, torch.ones_like(logits, dtype=torch.bool))
        return reduce(terms, self.config.reduction)

    def filters_of(self, task: int) -> AbstractContextManager[None]:
        """A context in which the network is the task's."""
        return filters_enabled(self.packing.layers, self.packing.active(task))

    @torch.no_grad()
    def predict_logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        """Each task through its own filters and head; a task never learned gives uniform scores."""
        indices = [self._task_index(task) for task in tasks]
        x = self.validate_inputs(x, "x")
        known = set(indices) & set(self.packing.tasks)
        scores = {index: self.task_scores(x, index) for index in known}
        return [
            self.logits_under(task, scores.get(index), len(x))
            for task, index in zip(tasks, indices, strict=True)
        ]

    def task_scores(self, x: Tensor, task: int) -> Tensor:
        """Logits of a task's head without gradient, ``[B, C]``; -inf for what it does not know."""
        with self.filters_of(task):
            z = self.embed(x)
        return _spread(self.heads.logits(z, task), self.heads.columns(task), len(self.class_table))

    def representation(self, x: Tensor, task: Task | None = None) -> Tensor:
        """Embeddings by the task's own filters; by all of them for a task never learned."""
        index = self._task_index(task)
        with self.filters_of(index) if index in self.packing.tasks else nullcontext():
            return super().representation(x, task)

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """The task's own head."""
        index = self._task_index(task)
        columns, (weight, bias) = self.heads.columns(index), self.heads.rows_of(index)

        def logits(z: Tensor) -> Tensor:
            own = nn.functional.linear(z, weight, bias)
            return _spread(own, columns, len(mask)).masked_fill(~mask, -math.inf)

        return logits

    def _task_index(self, task: Task | None) -> int:
        if task is None and OPEN_TASK not in self.packing.tasks:
            raise TaskRequired("PackNet has a network for each task: say which one to predict with")
        known = {task_id: i for i, (task_id, _) in enumerate(self.class_table.tasks, start=1)}
        return OPEN_TASK if task is None else known.get(task.id, NOT_MET)

    def scores(self, x: Tensor) -> Tensor:
        """Those of the open task."""
        return self.task_scores(x, OPEN_TASK)

    def trainable_modules(self) -> list[nn.Module]:
        """Network and heads."""
        return [self.network, self.heads.head]

    def state_parts(self) -> dict[str, Stateful]:
        """Also the heads, the generator that draws them, and the owners of the filters."""
        return {
            **super().state_parts(),
            "heads": self.heads,
            "head_generator": StatefulGenerator(self.heads.generator),
            "packing": self.packing,
        }

    def memory_usage(self) -> MemoryUsage:
        """The heads of all tasks and the owners of the filters."""
        held = super().memory_usage()
        owners = sum(owner.nbytes for owner in self.packing.owners)
        return MemoryUsage(
            held.examples, {**held.bytes, "heads": self.heads.bytes, "filter owners": owners}
        )

    def _validate_state(self, state: State) -> dict[str, State]:
        found = super()._validate_state(state)
        outputs, heads = found["outputs"].meta, found["heads"].meta["rows"]
        tasks = {*found["packing"].meta["tasks"], *(task for task, _ in heads)}
        columns = {column for _, column in heads}
        if not tasks <= set(range(len(outputs["tasks"]) + 1)) or not columns <= set(
            range(len(outputs["classes"]))
        ):
            raise StateMismatch("the state's heads are of tasks or classes it does not know")
        return found


def _spread(logits: Tensor, columns: Sequence[int], classes: int) -> Tensor:
    """Logits of some ``columns`` as scores of all classes, ``[B, C]``; -inf for the others."""
    scores = logits.new_full((len(logits), classes), -math.inf)
    scores[:, columns] = logits
    return scores
