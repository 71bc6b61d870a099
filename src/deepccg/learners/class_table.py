"""The class table: columns of classes, how many examples of each were seen, masks of tasks."""

from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from deepccg.core import Batch, InputError, State, StateMismatch, Task

Mask = Literal["task", "seen", "all"]
TrainMask = Annotated[
    Mask, Field(description="classes an incoming example is compared with: task, seen or all")
]
ReplayMask = Annotated[
    Mask,
    Field(description="classes a replayed example is compared with: its own task, seen or all"),
]

LARGEST = 2**63  # beyond what a tensor counts
OPEN_TASK = 0  # index of the task that ``task=None`` means: all classes seen so far


class ClassTable:
    """Columns in order of first appearance, and the masks of every method.

    Memories store a task's index in this table, not its id; index 0 is the open task.
    """

    def __init__(self, classes: Sequence[int] = ()) -> None:
        self.classes: list[int] = []
        self.tasks: list[tuple[int, tuple[int, ...]]] = []  # id and columns; index = position + 1
        self.seen = torch.zeros(0, dtype=torch.int64)  # examples seen of each class
        self.arrival: list[int] = []  # columns in the order their first examples came
        self.current: int | None = None  # index of the last batch's task
        self._column: dict[int, int] = {}
        self._index_of: dict[int, int] = {}  # by task id
        self._task_mask = torch.zeros(1, 0, dtype=torch.bool)
        self.declare(classes)

    def __len__(self) -> int:
        return len(self.classes)

    def begins_task(self, batch: Batch) -> bool:
        """Whether the batch is of another task than the last one; refuses labels outside it."""
        tasks = _distinct_tasks(batch)
        for task in tasks:
            self._check_known(task)
        if len({task.id for task in tasks}) != len({(t.id, frozenset(t.classes)) for t in tasks}):
            raise InputError("the batch has two different tasks of one id: give each its own")
        for task in tasks:
            if foreign := sorted(_labels_of(batch, task) - set(task.classes)):
                raise InputError(
                    f"labels {foreign} are not among the classes {list(task.classes)} "
                    f"of task {task.id}"
                )
        index = OPEN_TASK if batch.task is None else self._index_of.get(batch.task.id)
        return self.current is not None and self.current != index

    def observe(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Count a batch that ``begins_task`` has checked; new classes get columns.

        Returns:
            The batch's class columns ``[B]`` and task indices ``[B]``.
        """
        for task in _distinct_tasks(batch):
            if task.id not in self._index_of:
                self.declare(task.classes)
                self.tasks.append((task.id, tuple(self._column[c] for c in task.classes)))
                self._rebuild()
        self.current = index = OPEN_TASK if batch.task is None else self._index_of[batch.task.id]
        labels: list[int] = batch.y.tolist()
        self.declare(labels)
        columns = [self._column[label] for label in labels]
        if len(self.arrival) < len(self):  # or else every class has come before
            seen = self.seen.tolist()
            self.arrival += [column for column in dict.fromkeys(columns) if not seen[column]]
        met = torch.from_numpy(np.array(columns, dtype=np.int64))
        self.seen = self.seen + torch.bincount(met, minlength=len(self))
        if batch.tasks is None:
            return met, torch.full_like(met, index)
        return met, torch.tensor([self._index_of[task.id] for task in batch.tasks])

    def merge(self, other: "ClassTable") -> tuple[Tensor, Tensor]:
        """Count everything that ``other`` has counted.

        Returns:
            The column here of each of its columns, and the index here of each of its tasks.
        """
        for number, own in other.tasks:
            self._check_known(Task(number, tuple(other.classes[column] for column in own)))
        self.declare(other.classes)
        columns = torch.tensor([self._column[label] for label in other.classes], dtype=torch.int64)
        for number, own in other.tasks:
            if number not in self._index_of:
                self.tasks.append((number, tuple(columns[list(own)].tolist())))
                self._rebuild()
        arrived = [int(columns[column]) for column in other.arrival]
        self.arrival += [column for column in arrived if not self.seen[column]]
        self.seen = self.seen.index_add(0, columns, other.seen)
        tasks = [OPEN_TASK, *(self._index_of[number] for number, _ in other.tasks)]
        return columns, torch.tensor(tasks)

    def uncount(self, labels: Sequence[int]) -> Tensor:
        """Count examples of these labels as not seen; return their columns ``[B]``."""
        if unknown := sorted(set(labels) - set(self._column)):
            raise InputError(f"labels {unknown} were never learned")
        columns = torch.tensor([self._column[label] for label in labels], dtype=torch.int64)
        left = self.seen - torch.bincount(columns, minlength=len(self))
        if bool((left < 0).any()):
            label = self.classes[int(left.argmin())]
            raise InputError(f"of class {label} fewer examples were learned than are taken out")
        self.seen = left
        self.arrival = [column for column in self.arrival if left[column] > 0]
        return columns

    def mask(self, kind: Mask, task_idx: Tensor) -> Tensor:
        """Allowed columns ``[B, C]`` of examples of tasks ``task_idx [B]``.

        ``task``: the example's own task; ``seen``: all classes seen; ``all``: every output.
        """
        if kind == "all":
            return torch.ones(len(task_idx), len(self), dtype=torch.bool)
        seen = self.seen > 0
        if kind == "seen" or not self.tasks:  # without tasks every index is the open task's
            return seen.expand(len(task_idx), -1)
        task_idx = task_idx.cpu()
        return torch.where((task_idx == OPEN_TASK)[:, None], seen, self._task_mask[task_idx])

    def replay_mask(self, train: Mask, task_idx: Tensor, replay: Mask, replayed: Tensor) -> Tensor:
        """Allowed columns ``[B + R, C]`` of a batch under ``train`` and a replay under ``replay``.

        Their task indices are ``task_idx [B]`` and ``replayed [R]``.
        """
        if train == replay:
            return self.mask(train, torch.cat([task_idx, replayed]))
        return torch.cat([self.mask(train, task_idx), self.mask(replay, replayed)])

    def columns_of(self, task: Task | None) -> list[int]:
        """Columns of those of the task's classes that have been seen; without a task, of all."""
        if task is None:
            return self.seen.nonzero().flatten().tolist()
        columns = [self._column[c] for c in task.classes if c in self._column]
        return [column for column in columns if self.seen[column] > 0]

    def _check_known(self, task: Task) -> None:
        if task.id in self._index_of:
            columns = self.tasks[self._index_of[task.id] - 1][1]
            if {self.classes[c] for c in columns} != set(task.classes):
                raise InputError(f"task {task.id} came with other classes before; give it a new id")

    def declare(self, labels: Sequence[int]) -> None:
        """Give columns to those of ``labels`` that have none; nothing counts as seen."""
        new = [label for label in dict.fromkeys(labels) if label not in self._column]
        if new:
            self.classes += [int(label) for label in new]
            self.seen = torch.cat([self.seen, torch.zeros(len(new), dtype=torch.int64)])
            self._rebuild()

    def _rebuild(self) -> None:
        self._column = {label: column for column, label in enumerate(self.classes)}
        self._index_of = {task_id: i for i, (task_id, _) in enumerate(self.tasks, start=1)}
        self._task_mask = torch.zeros(len(self.tasks) + 1, len(self.classes), dtype=torch.bool)
        for index, (_, columns) in enumerate(self.tasks, start=1):
            self._task_mask[index, list(columns)] = True

    def state(self) -> State:
        """Everything, as JSON."""
        tasks = [[task_id, list(columns)] for task_id, columns in self.tasks]
        meta = {
            "classes": list(self.classes),
            "seen": self.seen.tolist(),
            "arrival": list(self.arrival),
            "current": self.current,
            "tasks": tasks,
        }
        return State({}, meta)

    def check(self, state: State) -> None:
        """Refuse a state whose lists do not fit together."""
        meta = state.meta
        classes, seen, arrival, tasks = (
            meta[name] for name in ("classes", "seen", "arrival", "tasks")
        )
        columns = [column for _, task in tasks for column in task]
        current = 0 if meta["current"] is None else meta["current"]
        counts = [*classes, *seen, *arrival, *columns, current]
        if not all(type(n) is int and 0 <= n < LARGEST for n in counts):
            raise StateMismatch("the state's classes, counts and tasks are not all numbers")
        ids = [task_id for task_id, _ in tasks]
        fits = (
            len(classes) == len(seen)
            and all(column < len(classes) for column in (*columns, *arrival))
            and all(type(task_id) is int for task_id in ids)
            and all(len(set(names)) == len(names) for names in (classes, arrival, ids))
            and all(seen[column] > 0 for column in arrival)
        )
        if not fits or current > len(tasks):
            raise StateMismatch("the state's classes, counts and tasks do not fit together")

    def load(self, state: State) -> None:
        """Take over what ``state`` says."""
        self.classes = [int(label) for label in state.meta["classes"]]
        self.seen = torch.tensor(state.meta["seen"], dtype=torch.int64)
        self.arrival = [int(column) for column in state.meta["arrival"]]
        self.tasks = [(int(i), tuple(int(c) for c in cols)) for i, cols in state.meta["tasks"]]
        current = state.meta["current"]
        self.current = None if current is None else int(current)
        self._rebuild()


def _distinct_tasks(batch: Batch) -> list[Task]:
    """Every task of a batch once; equal ones count as one, the open task as none."""
    tasks = (batch.task,) if batch.tasks is None else batch.tasks
    return [task for task in dict.fromkeys(tasks) if task is not None]


def _labels_of(batch: Batch, task: Task) -> set[int]:
    """The labels of the batch's examples of ``task``."""
    labels: list[int] = batch.y.tolist()
    if batch.tasks is None:
        return set(labels)
    return {label for label, own in zip(labels, batch.tasks, strict=True) if own == task}
