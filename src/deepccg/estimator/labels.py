"""Labels of any type, and tasks made of them, as integer codes that never move."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError, StateMismatch, Task
from deepccg.estimator.plain_labels import (
    Labels,
    as_signed,
    comparable,
    is_among,
    joined,
    plain_labels,
    restored_labels,
)

IntArray = npt.NDArray[np.int64]
AnyTask = Sequence[Any] | None  # the labels that are possible

_NUMBERS = "biuf"


@dataclass(frozen=True)
class LabelTable:
    """The labels known so far, sorted, the code under which a learner knows each, and the tasks.

    Codes are given in order of first appearance: a new label that sorts before others moves them
    in ``labels``, as scikit-learn requires, and changes nothing that was learned.

    >>> table = LabelTable.empty().extended(np.array(["dog", "cow"]))
    >>> table = table.extended(np.array(["ant", "cow"]))
    >>> table.labels.tolist(), table.codes.tolist()
    (['ant', 'cow', 'dog'], [2, 1, 0])
    >>> table.encode(np.array(["dog", "ant"])).tolist()
    [0, 2]
    """

    labels: Labels  # [K], sorted
    codes: IntArray  # [K], a permutation of 0 to K - 1
    tasks: tuple[tuple[int, ...], ...] = ()  # sorted codes of each; its number is its position

    @classmethod
    def empty(cls) -> "LabelTable":
        """Return a table without labels."""
        return cls(np.empty(0), np.empty(0, dtype=np.int64))

    @classmethod
    def restored(
        cls, labels: list[Any], kind: str, codes: list[int], tasks: tuple[tuple[int, ...], ...]
    ) -> "LabelTable":
        """Return the table of a file; reject what none can be.

        Args:
            labels: As JSON has them.
            kind: Their type, as NumPy writes it.
            codes: Of each.
            tasks: Codes of each.
        """
        array = restored_labels(labels, kind)
        in_order = all(before < after for before, after in pairwise(array.tolist()))
        if not in_order or sorted(codes) != list(range(len(array))):
            raise StateMismatch("its labels and codes do not fit together")
        for task in tasks:
            if not task or list(task) != sorted(set(task)) or task[-1] >= len(codes):
                raise StateMismatch("its tasks and codes do not fit together")
        return cls(array, np.array(codes, dtype=np.int64), tasks)

    def __len__(self) -> int:
        return len(self.codes)

    def extended(self, values: Labels) -> "LabelTable":
        """Return a table with codes also for those of ``values [N]`` that are new."""
        return self.coded(values)[0]

    def coded(self, values: Labels) -> tuple["LabelTable", IntArray]:
        """Return ``extended(values)``, and the code of each of ``values`` under it, ``[N]``."""
        values = as_signed(values)
        positions = self._find(values)
        if positions is not None:
            return self, self.codes[positions]
        table = self._with_new(values)
        return table, table.encode(values)

    def encode(self, values: Labels) -> IntArray:
        """Return the code of each label; an unknown one is an ``InputError``."""
        values = as_signed(values)
        positions = self._find(values)
        if positions is None:
            unknown = np.flatnonzero(~is_among(values, self.labels))
            raise InputError(
                f"the label {values[unknown[0]]!r} was never seen: known are {self.labels.tolist()}"
            )
        return self.codes[positions]

    def positions(self, codes: Sequence[int]) -> IntArray:
        """Return the position among ``labels`` of each code's label."""
        return np.argsort(self.codes)[np.array(codes, dtype=np.int64)].astype(np.int64)

    def task(self, task: AnyTask) -> Task | None:
        """Return the task of these labels; the same labels in any order are the same task."""
        if task is None:
            return None
        codes = tuple(sorted(set(self.encode(task_labels(task)).tolist())))
        number = self.tasks.index(codes) if codes in self.tasks else len(self.tasks)
        return Task(id=number, classes=codes)

    def with_task(self, task: Task | None) -> "LabelTable":
        """Return a table that knows ``task`` by its number."""
        if task is None or task.id < len(self.tasks):
            return self
        return replace(self, tasks=(*self.tasks, task.classes))

    def without(self, codes: Collection[int]) -> "Renumbered":
        """Return a table without these codes; the others close the gaps and keep their order."""
        left = sorted(set(self.codes.tolist()) - set(codes))
        new_code = {code: rank for rank, code in enumerate(left)}
        kept = np.isin(self.codes, left)
        tasks = {
            number: tuple(new_code[code] for code in task if code in new_code)
            for number, task in enumerate(self.tasks)
        }
        new_task = {n: rank for rank, n in enumerate(n for n, task in tasks.items() if task)}
        table = LabelTable(
            self.labels[kept],
            np.array([new_code[code] for code in self.codes[kept].tolist()], dtype=np.int64),
            tuple(tasks[number] for number in new_task),
        )
        return Renumbered(table, new_code, new_task)

    def _with_new(self, values: Labels) -> "LabelTable":
        """Give codes to the labels that are new, in order of first appearance."""
        found, first = np.unique(values, return_index=True)
        if len(self) == 0:
            labels, new = found, np.ones(len(found), dtype=bool)
        else:
            new = ~is_among(found, self.labels)
            labels = joined(self.labels, found[new])
        arrival = np.argsort(np.argsort(first[new]))
        codes = np.concatenate([self.codes, len(self) + arrival]).astype(np.int64)
        order = np.argsort(labels, kind="stable")
        return LabelTable(labels[order], codes[order], self.tasks)

    def _find(self, values: Labels) -> IntArray | None:
        """Return the position of each of ``values`` in ``labels``; ``None`` if one is new.

        Reject numbers among names: to sort both together, NumPy would turn them into strings.
        """
        if len(values) == 0:
            return np.empty(0, dtype=np.int64)
        if len(self) == 0:
            return None
        if (values.dtype.kind in _NUMBERS) != (self.labels.dtype.kind in _NUMBERS):
            raise InputError(
                f"the labels so far are {self.labels.dtype}, these are {values.dtype}: "
                f"numbers and names cannot be mixed"
            )
        labels, values = comparable(self.labels, values)
        nearest = np.minimum(np.searchsorted(labels, values), len(self) - 1)
        return nearest if (labels[nearest] == values).all() else None


class Renumbered(NamedTuple):
    """What ``LabelTable.without`` returns: the table, and the new number of what remains."""

    table: LabelTable
    new_code: dict[int, int]
    new_task: dict[int, int]


def task_labels(task: Iterable[Any], of: Labels | None = None) -> Labels:
    """Return the labels that a task allows, ``[K]``; reject examples ``of`` other labels."""
    if isinstance(task, str) or not isinstance(task, Iterable):
        raise InputError(f"task is {task!r}: list the labels that are possible, [{task!r}, ...]")
    allowed = plain_labels(list(task))
    if of is not None and len(outside := of[~is_among(of, allowed)]):
        raise InputError(f"the label {outside[0]!r} is not one of the task's {allowed.tolist()}")
    return allowed
