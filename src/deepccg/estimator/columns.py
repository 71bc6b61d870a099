"""How the columns of a table become numbers: decided when they are first learned, for good.

A number stays what it is; one that is missing becomes the mean of its column. A value of a category
or text column becomes a 1 in a slot of its own. The width never changes, and what was encoded once
is encoded alike ever after, which sums that forget nothing need.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError

Numbers = npt.NDArray[np.floating[Any]]
Texts = Mapping[int, Sequence[str | None]]  # by position of the column

ENOUGH = 100  # values of a column whose mean stands for one that is missing
FEWEST_SLOTS, ROOM, MOST_SLOTS = 16, 8, 256  # of a column: at least, to spare at first, at most


@dataclass(frozen=True)
class Categories:
    """The slots of one column: each value has its own, the last is for all that come too late.

    >>> Categories.of(["b", "a", "b", None]).values
    ('b', 'a')
    """

    values: tuple[str, ...]
    slots: int

    @classmethod
    def of(cls, values: Sequence[str | None], declared: Sequence[str] = ()) -> Self:
        """Return slots for these values, and others that were declared, with room for more."""
        found = len({*values, *declared} - {None})
        slots = min(max(FEWEST_SLOTS, found + ROOM), MOST_SLOTS)
        return cls((), slots).learned(values).learned(declared)

    @property
    def full(self) -> bool:
        """Whether further values share the last slot."""
        return len(self.values) == self.slots - 1

    def learned(self, values: Sequence[str | None]) -> Self:
        """Return these slots with some for the values that have none, the frequent ones first."""
        new = Counter(value for value in values if value is not None)
        for value in self.values:
            del new[value]
        ranked = sorted(new, key=lambda value: (-new[value], value))
        return replace(self, values=(*self.values, *ranked)[: self.slots - 1]) if new else self

    def encode(self, values: Sequence[str | None]) -> npt.NDArray[np.float64]:
        """Return ``[N, slots]``; zeros where a value is missing or was never learned."""
        slot: dict[str | None, int] = {value: i for i, value in enumerate(self.values)}
        unknown = self.slots - 1 if self.full else None
        hot = np.zeros((len(values), self.slots))
        for row, value in enumerate(values):
            found = slot.get(value, unknown)
            if found is not None and value is not None:
                hot[row, found] = 1.0
        return hot


@dataclass(frozen=True, eq=False)
class Columns:
    """A table's columns, as far as they were learned.

    Args:
        categories: The slots of each column; ``None`` where it holds numbers.
        count: How many values the mean is of, ``[F]``; from a hundred on it does not move.
        mean: What stands for a missing number, ``[F]``; 0 as long as no value came.
    """

    categories: tuple[Categories | None, ...]
    count: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]

    @classmethod
    def of(cls, categories: Sequence[Categories | None]) -> Self:
        """Return columns of which no number was learned."""
        return cls(tuple(categories), np.zeros(len(categories)), np.zeros(len(categories)))

    def __len__(self) -> int:
        return len(self.categories)

    @property
    def texts(self) -> list[int]:
        """The positions of the columns that hold categories or text."""
        return [i for i, own in enumerate(self.categories) if own is not None]

    @property
    def width(self) -> int:
        """How many numbers a row becomes."""
        return sum(1 if own is None else own.slots for own in self.categories)

    def learned(self, numbers: Numbers, texts: Texts) -> Self:
        """Return the columns once these rows were learned: further values, and means."""
        categories = [
            own if own is None else own.learned(texts.get(i, ()))
            for i, own in enumerate(self.categories)
        ]
        moving = self.count < ENOUGH
        if not (moving.any() or texts):
            return self
        present = np.isfinite(numbers)
        total = np.where(moving, self.count + present.sum(axis=0), self.count)
        share = numbers.astype(np.float64) / np.maximum(total, 1)  # a sum might overflow
        mean = self.mean * self.count / np.maximum(total, 1) + share.sum(axis=0, where=present)
        return replace(
            self,
            categories=tuple(categories),
            count=total,
            mean=np.where(moving, mean, self.mean),
        )

    def encode(self, numbers: Numbers, texts: Texts) -> Numbers:
        """Return ``[N, width]`` of ``numbers [N, F]`` and the values of the other columns."""
        missing = np.isnan(numbers)
        if missing.any():
            numbers = np.where(missing, self.mean.astype(numbers.dtype), numbers)
        if not self.texts:
            return numbers
        parts = [
            numbers[:, i : i + 1] if own is None else own.encode(texts[i]).astype(numbers.dtype)
            for i, own in enumerate(self.categories)
        ]
        return np.concatenate(parts, axis=1)

    def merged(self, other: "Columns", names: Sequence[Any]) -> Self:
        """Return columns that encode what was learned with either as it was."""
        if self.texts != other.texts or len(self) != len(other):
            raise InputError("merge takes a classifier of tables with the same columns")
        both = zip(self.categories, other.categories, names, strict=True)
        ours = self.count >= other.count
        return replace(
            self,
            categories=tuple(own and _merged(own, theirs, name) for own, theirs, name in both),
            count=np.where(ours, self.count, other.count),
            mean=np.where(ours, self.mean, other.mean),
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``SavedColumns``."""
        slots = [own and {**vars(own), "values": list(own.values)} for own in self.categories]
        return {"categories": slots, "count": self.count.tolist(), "mean": self.mean.tolist()}


def _merged(own: Categories, theirs: Categories | None, name: Any) -> Categories:
    """Return the slots of both, if no value has another slot there."""
    shared = min(len(own.values), len(theirs.values)) if theirs else 0
    if theirs is None or (own.values[:shared], own.slots) != (theirs.values[:shared], theirs.slots):
        raise InputError(
            f"merge: the two met values of the column {name!r} in different order: begin with a "
            f"copy that knows them, or declare them by a category type of the data frame"
        )
    return max(own, theirs, key=lambda each: len(each.values))
