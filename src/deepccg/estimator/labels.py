"""Labels of any type, and tasks made of them, as integer codes that never move."""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError, StateMismatch, Task
from deepccg.estimator.features import is_missing

Labels = npt.NDArray[np.generic]
IntArray = npt.NDArray[np.int64]
AnyTask = Sequence[Any] | None  # the labels that are possible

_NUMBERS = "biuf"
_LIMIT = 2**63  # of int64
_LARGEST_EXACT = 2**53  # up to which float64 has every whole number
_MOST_BYTES = 2**30  # of all labels
_MISSING = "y contains NaN or None: every example needs a label"


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
        array = _restored_labels(labels, kind)
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


def plain_labels(values: Any) -> Labels:
    """Return one label or several as an array of numbers or names, ``[K]``; reject all else."""
    array = label_array(values)
    if array.ndim == 1 and array.dtype.kind in "OT":
        array = _plain_objects(array.astype(object))
    if array.dtype == np.longdouble and (array == (plain := array.astype(np.float64))).all():
        array = plain
    _check_labels(array)
    return as_signed(array)


def label_array(values: Any) -> Labels:
    """Return one label or several from any container; as objects where NumPy would guess."""
    if isinstance(values, str | bytes):
        values = [values]
    elif isinstance(values, Iterable) and not hasattr(values, "__array__"):
        # The order of a set changes from run to run.
        unordered = isinstance(values, set | frozenset)
        values = sorted(values, key=repr) if unordered else list(values)
    if not (isinstance(values, list) and _would_change(values)):
        with suppress(ValueError):  # some are lists themselves
            return np.atleast_1d(np.asarray(values))
    return np.fromiter(values, dtype=object, count=len(values))


def joined(labels: Labels, others: Labels) -> Labels:
    """Return both, one behind the other, none of them rounded.

    Whole numbers beside floating ones become floating, as in NumPy, unless that would round one.
    """
    exact = [part.astype(np.int64) for part in (labels, others) if part.dtype.kind in "biu"]
    if len(exact) == 1 and not (np.abs(exact[0]) <= _LARGEST_EXACT).all():
        return np.concatenate(comparable(labels, others))
    return np.concatenate([labels, others])


def is_among(values: Labels, labels: Labels) -> npt.NDArray[np.bool_]:
    """Return which of ``values [N]`` are equal to one of ``labels``, as Python compares them."""
    return np.isin(*comparable(values, labels))


def comparable(labels: Labels, others: Labels) -> tuple[Labels, Labels]:
    """Return both as int64 where NumPy would round whole numbers to compare them."""
    kinds = {labels.dtype.kind, others.dtype.kind}
    if kinds == {"f"} or np.promote_types(labels.dtype, others.dtype).kind != "f":
        return labels, others
    return labels.astype(np.int64), others.astype(np.int64)


def as_signed(labels: Labels) -> Labels:
    """Return uint64 as int64: beside other numbers NumPy would make it floating."""
    if labels.dtype != np.uint64:
        return labels
    _check_labels(labels)
    return labels.astype(np.int64)


def _restored_labels(labels: list[Any], kind: str) -> Labels:
    """Return labels as they were before they were written as JSON."""
    try:
        dtype = np.dtype(kind)
        if dtype.kind not in "biufUO" or dtype.itemsize * len(labels) > _MOST_BYTES:
            raise ValueError("no type of labels")
        array = np.array(labels, dtype=dtype)
        if dtype.kind == "O" and not all(type(label) is str for label in labels):
            raise ValueError("no names")
        if array.tolist() != labels or list(map(type, array.tolist())) != list(map(type, labels)):
            raise ValueError("other labels")
        _check_labels(array)
    except (OverflowError, TypeError, ValueError) as error:
        raise StateMismatch(f"its labels are not of the type {kind}: {error}") from None
    return array


def _plain_objects(objects: Labels) -> Labels:
    """Return objects ``[K]`` as names or, where NumPy can, as numbers; reject missing ones."""
    if any(map(is_missing, objects)):
        raise InputError(_MISSING)
    kinds = {isinstance(value, str) for value in objects}
    if len(kinds) > 1:
        raise InputError("numbers and names cannot be mixed as labels")
    if True not in kinds:
        return _plain_numbers(objects)
    if set(map(type, objects)) == {str}:
        return objects
    names = [str.__str__(value) for value in objects]
    return np.array(names, dtype=object if any(map(_ends_in_zero, names)) else None)


def _plain_numbers(objects: Labels) -> Labels:
    """Return objects ``[K]`` in the type NumPy gives them, or as int64 where that would round."""
    with suppress(ValueError):  # some are lists
        numbers = np.asarray(objects.tolist())
        if numbers.dtype.kind != "f" or not all(map(_is_plain, objects)):
            return numbers
        whole = np.array([int(value) for value in objects], dtype=np.int64)
        return numbers if (np.abs(whole) <= _LARGEST_EXACT).all() else whole
    return objects


def _check_labels(labels: Labels) -> None:
    """Reject what is neither a name, a truth value nor a whole number that int64 can hold."""
    if labels.ndim == 1 and labels.dtype.kind in "biU":
        return
    if labels.dtype.kind == "f":
        labels = labels.astype(np.float64)
        if np.isnan(labels).any():
            raise InputError(_MISSING)
    possible = labels.ndim == 1 and labels.dtype.kind in "fuO"
    unusable = [value for value in labels.tolist() if not (possible and _is_plain(value))]
    if unusable:
        raise InputError(  # scikit-learn requires the first words
            f"Unknown label type: {unusable[0]!r} is neither a name, a truth value nor a whole "
            f"number that int64 holds"
        )


def _would_change(values: list[Any]) -> bool:
    """Return whether NumPy would make other labels of these.

    It truncates ``Enum`` members, cuts zero characters off the end of names, writes out numbers
    among names, and rounds whole numbers beside floating or unsigned ones.
    """
    kinds = set(map(type, values))
    if kinds == {str}:
        return any(map(_ends_in_zero, values))
    return len(kinds) > 1 or any(issubclass(kind, str) for kind in kinds)


def _ends_in_zero(name: str) -> bool:
    return name.endswith("\0")


def _is_plain(value: Any) -> bool:
    """Return whether an object is a name, or a whole number."""
    if isinstance(value, int | float | np.integer):
        return bool(-_LIMIT <= value < _LIMIT and value % 1 == 0)
    return isinstance(value, str)
