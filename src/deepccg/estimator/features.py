"""Features by name, which come and go, as rows of numbers in fixed slots."""

import math
import numbers
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError

FloatArray = npt.NDArray[np.float64]

_PLAIN = {bool, float, int}
_PANDAS_MISSING = {"NAType", "NaTType"}  # by name: without River there need be no pandas


class FeatureTable:
    """The slot of each feature in a row; slots are given in order of first appearance.

    Features that appear together get theirs in the order of their names: the order in which a
    dictionary lists them means nothing.

    >>> table = FeatureTable()
    >>> table.add({"b": 1.0, "a": 2.0})
    >>> table.row({"a": 2.0, "c": 3.0}).tolist()
    [2.0, 0.0]
    """

    def __init__(self) -> None:
        self.slots: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, names: Iterable[Hashable]) -> None:
        """Give slots to those of ``names`` that have none."""
        new = [name for name in names if name not in self.slots]
        for name in sorted(new, key=lambda name: (type(name).__name__, str(name))):
            self.slots[name] = len(self.slots)

    def keep(self, count: int) -> None:
        """Remove all but the first ``count`` features."""
        for name in list(self.slots)[count:]:
            del self.slots[name]

    def row(self, x: Mapping[Any, Any]) -> FloatArray:
        """Return the values of ``x`` in their slots, 0 where missing; other names are ignored."""
        return np.array([x.get(name, 0.0) for name in self.slots], dtype=np.float64)

    def rows(self, values: FloatArray, names: Iterable[Hashable]) -> FloatArray:
        """Return rows ``[N, F]`` of ``values [N, K]`` of the features ``names``; NaN is missing."""
        placed = np.zeros((len(values), len(self.slots)))
        for column, name in enumerate(names):
            if name in self.slots:
                placed[:, self.slots[name]] = values[:, column]
        return np.nan_to_num(placed, copy=False, nan=0.0)


def present(x: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """Return the features of ``x`` that have a value; reject what is not a finite number."""
    if set(map(type, x.values())) <= _PLAIN and _are_finite(x.values()):
        return x
    given = {name: value for name, value in x.items() if not is_missing(value)}
    for name, value in given.items():
        if not isinstance(value, numbers.Real | np.bool_) or isinstance(value, np.timedelta64):
            raise InputError(
                f"the feature {name!r} is {value!r}: a number is needed; "
                f"river.preprocessing.OneHotEncoder makes numbers of names"
            )
        if not _are_finite([value]):
            raise InputError(f"the feature {name!r} is {value}: it must be finite, or left out")
    return given


def frame_values(frame: Any) -> FloatArray:
    """Return the numbers of a data frame, ``[N, K]``, NaN where one is missing."""
    try:
        # Text that reads like a number is text.
        texts = [name for name, kind in frame.dtypes.items() if kind.kind not in "biuf"]
        for row in frame[texts].to_dict("records"):
            present(row)
        if texts:  # among objects, pandas would leave its own NA and NaT to float()
            frame = frame.mask(frame.isna())
        values: FloatArray = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError) as error:
        raise InputError(f"the data frame holds something that is not a number: {error}") from None
    if np.isinf(values).any():
        raise InputError("the data frame holds infinity: values must be finite, or left out")
    return values


def is_missing(value: Any) -> bool:
    """Return whether a value is None, NaN, or pandas' NA or NaT."""
    if value is None or type(value).__name__ in _PANDAS_MISSING:
        return True
    return isinstance(value, numbers.Real | np.datetime64) and bool(value != value)


def of_width(rows: FloatArray, width: int) -> FloatArray:
    """Return rows ``[N, F]`` with zeros added or the last slots left out."""
    placed = np.zeros((len(rows), width))
    shared = min(width, rows.shape[1])
    placed[:, :shared] = rows[:, :shared]
    return placed


def split_at_new_features(
    values: FloatArray, names: list[Any], known: Container[Any]
) -> Iterator[tuple[slice, list[Any]]]:
    """Split rows where features first have a value; yield rows and the features new with them."""
    has_value = ~np.isnan(values)
    first = {
        name: int(column.argmax())
        for name, column in zip(names, has_value.T, strict=True)
        if name not in known and column.any()
    }
    starts = sorted({0, *first.values()})
    for begin, end in pairwise([*starts, len(values)]):
        yield slice(begin, end), [name for name, row in first.items() if row == begin]


def _are_finite(values: Iterable[Any]) -> bool:
    """Return whether all are finite as floats: huge integers are not."""
    try:
        return math.isfinite(math.fsum(values))
    except (OverflowError, ValueError):
        return False
