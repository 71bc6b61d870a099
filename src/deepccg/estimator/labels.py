"""Labels of any type as integer codes that never move, and back."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError, Task
from deepccg.estimator.features import is_missing

Labels = npt.NDArray[np.generic]
IntArray = npt.NDArray[np.int64]

_NUMBERS = "biuf"
_LIMIT = 2**63  # of int64
_MISSING = "y contains NaN or None: every example needs a label"


@dataclass(frozen=True)
class LabelTable:
    """The labels known so far, sorted, and the code under which a learner knows each.

    Codes are given in order of first appearance: a new label that sorts before others moves them
    in ``labels``, as scikit-learn demands, and changes nothing that was learned.

    Args:
        labels: ``[K]``, sorted.
        codes: ``[K]``, a permutation of 0 to K - 1.

    >>> table = LabelTable.empty().extended(np.array(["dog", "cow"]))
    >>> table = table.extended(np.array(["ant", "cow"]))
    >>> table.labels.tolist(), table.codes.tolist()
    (['ant', 'cow', 'dog'], [2, 1, 0])
    >>> table.encode(np.array(["dog", "ant"])).tolist()
    [0, 2]
    """

    labels: Labels
    codes: IntArray

    @classmethod
    def empty(cls) -> "LabelTable":
        """No label yet."""
        return cls(np.empty(0), np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.codes)

    def extended(self, values: Labels) -> "LabelTable":
        """With codes also for those of ``values [N]`` that are new."""
        return self.coded(values)[0]

    def coded(self, values: Labels) -> tuple["LabelTable", IntArray]:
        """``extended``, and the code of each of ``values`` under it, ``[N]``."""
        values = signed(values)
        places = self._places(values)
        if places is not None:
            return self, self.codes[places]
        table = self._with_new(values)
        return table, table.encode(values)

    def closing_up(self, gone: Iterable[int]) -> dict[int, int]:
        """New codes of all but ``gone``: the others close the gaps and keep their order."""
        left = sorted(set(self.codes.tolist()) - set(gone))
        return {code: rank for rank, code in enumerate(left)}

    def renumbered(self, new_code: Mapping[int, int]) -> "LabelTable":
        """With new codes, without labels that get none."""
        kept = np.array([code in new_code for code in self.codes.tolist()], dtype=bool)
        codes = [new_code[code] for code in self.codes[kept].tolist()]
        return LabelTable(self.labels[kept], np.array(codes, dtype=np.int64))

    def encode(self, values: Labels) -> IntArray:
        """The code of each label; one that is not known is an ``InputError``."""
        values = signed(values)
        places = self._places(values)
        if places is None:
            self._check_kind(values)
            unknown = np.flatnonzero(~np.isin(values, self.labels))
            raise InputError(
                f"the label {values[unknown[0]]!r} was never seen: known are {self.labels.tolist()}"
            )
        return self.codes[places]

    def positions(self) -> IntArray:
        """Where the label of each code stands among ``labels``, ``[K]``."""
        return np.argsort(self.codes).astype(np.int64)

    def _with_new(self, values: Labels) -> "LabelTable":
        """With codes for the labels that are new, in order of first appearance."""
        found, first = np.unique(values, return_index=True)
        if len(self) == 0:
            labels, new = found, np.ones(len(found), dtype=bool)
        else:
            self._check_kind(values)
            new = ~np.isin(found, self.labels)
            labels = np.concatenate([self.labels, found[new]])
        arrival = np.argsort(np.argsort(first[new]))
        codes = np.concatenate([self.codes, len(self) + arrival]).astype(np.int64)
        order = np.argsort(labels, kind="stable")
        return LabelTable(labels[order], codes[order])

    def _places(self, values: Labels) -> IntArray | None:
        """Where each of ``values`` stands among ``labels``; ``None`` if one of them is new."""
        if len(values) == 0:
            return np.empty(0, dtype=np.int64)
        if len(self) == 0 or self._is_of_other_kind(values):
            return None
        nearest = np.minimum(np.searchsorted(self.labels, values), len(self) - 1)
        return nearest if (self.labels[nearest] == values).all() else None

    def _check_kind(self, values: Labels) -> None:
        if self._is_of_other_kind(values):
            raise InputError(
                f"the labels so far are {self.labels.dtype}, these are {values.dtype}: "
                f"numbers and names cannot be mixed"
            )

    def _is_of_other_kind(self, values: Labels) -> bool:
        """NumPy would turn numbers into strings to sort both together."""
        differ = (values.dtype.kind in _NUMBERS) != (self.labels.dtype.kind in _NUMBERS)
        return differ and len(self) > 0


def plain_labels(values: Any) -> Labels:
    """Labels ``[K]``, one or several, as an array of numbers or of names; all else is refused."""
    array = gathered(values)
    if array.ndim == 1 and array.dtype.kind in "OT":
        array = of_one_kind(array.astype(object))
    check_usable(array)
    return signed(array)


def gathered(values: Any) -> Labels:
    """One label or several, in whatever holds them, as an array; of objects where NumPy guesses."""
    if isinstance(values, str | bytes):
        values = [values]
    elif isinstance(values, Iterable) and not hasattr(values, "__array__"):
        # The order of a set changes from run to run.
        unordered = isinstance(values, set | frozenset)
        values = sorted(values, key=repr) if unordered else list(values)
    if isinstance(values, list) and _has_unusual_names(values):
        return _objects(values)
    try:
        return np.atleast_1d(np.asarray(values))
    except ValueError:  # some are lists themselves
        return _objects(values)


def of_one_kind(objects: Labels) -> Labels:
    """Objects ``[K]`` as names or, where NumPy can, as numbers; missing ones are refused."""
    if any(map(is_missing, objects)):
        raise InputError(_MISSING)
    kinds = {isinstance(value, str) for value in objects}
    if len(kinds) > 1:
        raise InputError("numbers and names cannot be mixed as labels")
    if True not in kinds:
        return gathered(objects.tolist())
    if set(map(type, objects)) == {str}:
        return objects
    return np.array([str.__str__(value) for value in objects])


def check_usable(labels: Labels) -> None:
    """Refuse what is neither a name, a truth value nor a whole number that int64 can hold."""
    if labels.ndim == 1 and labels.dtype.kind in "biU":
        return
    if labels.dtype.kind == "f" and np.isnan(labels.astype(np.float64)).any():
        raise InputError(_MISSING)
    usable = _usable(labels) if labels.ndim == 1 else np.zeros(len(labels), dtype=bool)
    if not usable.all():
        first = labels[~usable].tolist()[0]
        raise InputError(  # scikit-learn demands the first words
            f"Unknown label type: {first!r} is neither a name, a truth value nor a whole number "
            f"that int64 holds"
        )


def signed(labels: Labels) -> Labels:
    """As int64 what is uint64: beside other numbers NumPy would make it floating."""
    if labels.dtype != np.uint64:
        return labels
    check_usable(labels)
    return labels.astype(np.int64)


def _has_unusual_names(values: list[Any]) -> bool:
    """NumPy cuts members of an ``Enum`` of names short, and writes out numbers beside names."""
    kinds = set(map(type, values))
    return kinds != {str} and any(issubclass(kind, str) for kind in kinds)


def _objects(values: Sequence[Any]) -> Labels:
    return np.fromiter(values, dtype=object, count=len(values))


def _usable(labels: Labels) -> npt.NDArray[np.bool_]:
    """Which of ``labels [K]`` can be a label, ``[K]``."""
    kind = labels.dtype.kind
    if kind == "f":
        numbers = labels.astype(np.float64)
        return np.asarray((numbers == np.floor(numbers)) & (np.abs(numbers) < _LIMIT))
    if kind == "u":
        return np.asarray(labels.astype(np.uint64) < _LIMIT)
    if kind == "O":
        return np.array([_is_plain(value) for value in labels], dtype=bool)
    return np.full(len(labels), kind in "biU")


def _is_plain(value: Any) -> bool:
    """A name, or a number that NumPy left an object because of others."""
    if isinstance(value, int | float | np.integer):
        return bool(-_LIMIT <= value < _LIMIT and value % 1 == 0)
    return isinstance(value, str)


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
