"""Which column belongs to which class, which classes were seen, and what each task allows."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from deepccg.core import Batch, InputError, State, StateMismatch, Task

Mask = Literal["task", "seen", "all"]

OPEN_TASK = 0  # row of the task that ``task=None`` means: all classes seen, whenever it is asked


class Outputs:
    """Columns in order of first appearance, and the mask table of every method.

    A task's row number, not its id, is what memories store; row 0 is the open task.
    """

    def __init__(self, classes: Sequence[int] = ()) -> None:
        self.classes: list[int] = []
        self.tasks: list[tuple[int, tuple[int, ...]]] = []  # id and columns; row = position + 1
        self.seen = torch.zeros(0, dtype=torch.int64)  # examples seen of each class
        self.arrival: list[int] = []  # columns in the order their first examples came
        self._column: dict[int, int] = {}
        self._row: dict[int, int] = {}
        self._task_mask = torch.zeros(1, 0, dtype=torch.bool)
        self._add_classes(classes)

    def __len__(self) -> int:
        return len(self.classes)

    def observe(self, batch: Batch) -> tuple[Tensor, int]:
        """Meet a batch: give its classes columns, count them, and name its task's row.

        Returns:
            The batch's class columns ``[B]`` and its task row.
        """
        labels: list[int] = batch.y.tolist()
        row = OPEN_TASK
        if batch.task is not None:
            strangers = sorted(set(labels) - set(batch.task.classes))
            if strangers:
                raise InputError(
                    f"labels {strangers} are not among the classes {list(batch.task.classes)} "
                    f"of task {batch.task.id}"
                )
            row = self._task_row(batch.task)
        self._add_classes(labels)
        columns = torch.tensor([self._column[label] for label in labels])
        new = [c for c in dict.fromkeys(columns.tolist()) if self.seen[c] == 0]
        self.arrival += new
        self.seen = self.seen + torch.bincount(columns, minlength=len(self))
        return columns, row

    def mask(self, kind: Mask, rows: Tensor) -> Tensor:
        """Allowed columns ``[B, C]`` of examples with task ``rows [B]``.

        ``task``: the example's own task; ``seen``: all classes seen; ``all``: every output.
        """
        if kind == "all":
            return torch.ones(len(rows), len(self), dtype=torch.bool)
        seen = self.seen > 0
        if kind == "seen":
            return seen.expand(len(rows), -1)
        rows = rows.cpu()
        return torch.where((rows == OPEN_TASK)[:, None], seen, self._task_mask[rows])

    def columns_of(self, task: Task) -> list[int]:
        """Columns of those of the task's classes that have been seen."""
        columns = [self._column[c] for c in task.classes if c in self._column]
        return [column for column in columns if self.seen[column] > 0]

    def _task_row(self, task: Task) -> int:
        known = self._row.get(task.id)
        if known is not None:
            columns = self.tasks[known - 1][1]
            if {self.classes[c] for c in columns} != set(task.classes):
                raise InputError(f"task {task.id} came with other classes before; give it a new id")
            return known
        self._add_classes(task.classes)
        self.tasks.append((task.id, tuple(self._column[c] for c in task.classes)))
        self._index()
        return len(self.tasks)

    def _add_classes(self, labels: Sequence[int]) -> None:
        new = [label for label in dict.fromkeys(labels) if label not in self._column]
        if new:
            self.classes += [int(label) for label in new]
            self.seen = torch.cat([self.seen, torch.zeros(len(new), dtype=torch.int64)])
            self._index()

    def _index(self) -> None:
        self._column = {label: column for column, label in enumerate(self.classes)}
        self._row = {task_id: row for row, (task_id, _) in enumerate(self.tasks, start=1)}
        self._task_mask = torch.zeros(len(self.tasks) + 1, len(self.classes), dtype=torch.bool)
        for row, (_, columns) in enumerate(self.tasks, start=1):
            self._task_mask[row, list(columns)] = True

    def state(self) -> State:
        """Everything, as JSON."""
        tasks = [[task_id, list(columns)] for task_id, columns in self.tasks]
        meta = {
            "classes": list(self.classes),
            "seen": self.seen.tolist(),
            "arrival": list(self.arrival),
            "tasks": tasks,
        }
        return State({}, meta)

    def check(self, state: State) -> None:
        """Refuse a state whose lists do not fit together."""
        meta = state.meta
        columns = [column for _, task in meta["tasks"] for column in task] + meta["arrival"]
        if len(meta["classes"]) != len(meta["seen"]) or any(
            not 0 <= column < len(meta["classes"]) for column in columns
        ):
            raise StateMismatch("the state's classes, counts and tasks do not fit together")

    def load(self, state: State) -> None:
        """Be exactly what ``state`` says."""
        self.classes = [int(label) for label in state.meta["classes"]]
        self.seen = torch.tensor(state.meta["seen"], dtype=torch.int64)
        self.arrival = [int(column) for column in state.meta["arrival"]]
        self.tasks = [(int(i), tuple(int(c) for c in cols)) for i, cols in state.meta["tasks"]]
        self._index()
