"""Tasks as users name them: by the labels that are possible."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from deepccg.core import InputError, Task
from deepccg.estimator.inputs import plain_labels
from deepccg.estimator.labels import Labels, LabelTable

AnyTask = Sequence[Any] | None


def labels_of(task: Sequence[Any]) -> Labels:
    """The labels a task allows."""
    if isinstance(task, str) or not isinstance(task, Iterable):
        raise InputError(f"task is {task!r}: list the labels that are possible, [{task!r}, ...]")
    return plain_labels(list(task))


def check_within(labels: Labels, allowed: Labels) -> None:
    """Every label is one of the task's."""
    outside = labels[~np.isin(labels, allowed)]
    if len(outside):
        raise InputError(f"the label {outside[0]!r} is not one of the task's {allowed.tolist()}")


class TaskTable:
    """Which number a task has: the same labels again, in any order, are the same task."""

    def __init__(self) -> None:
        self.tasks: list[tuple[int, ...]] = []  # each task's codes, sorted

    def note(self, task: Task | None) -> None:
        """Know the task by its number from now on."""
        if task is not None and task.id == len(self.tasks):
            self.tasks.append(task.classes)

    def task(self, task: AnyTask, labels: LabelTable) -> Task | None:
        """The task under the learner's codes; a new one has the next number."""
        if task is None:
            return None
        codes = tuple(sorted(set(labels.encode(labels_of(task)).tolist())))
        number = self.tasks.index(codes) if codes in self.tasks else len(self.tasks)
        return Task(id=number, classes=codes)

    def closing_up(self, new_code: Mapping[int, int]) -> dict[int, int]:
        """New numbers of the tasks that keep a class when only those of ``new_code`` stay."""
        left = [i for i, codes in enumerate(self.tasks) if any(c in new_code for c in codes)]
        return {number: rank for rank, number in enumerate(left)}

    def renumbered(self, new_code: Mapping[int, int]) -> "TaskTable":
        """As ``closing_up`` says, under the new codes."""
        table = TaskTable()
        table.tasks = [
            tuple(sorted(new_code[code] for code in self.tasks[number] if code in new_code))
            for number in self.closing_up(new_code)
        ]
        return table
