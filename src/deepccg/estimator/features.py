"""Features by name, which come and go, as rows of numbers in slots that never move."""

import math
import numbers
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError

FloatArray = npt.NDArray[np.float64]

_PLAIN = {bool, float, int}
_PANDAS_MISSING = {"NAType", "NaTType"}  # by name: without River there need be no pandas


class FeatureTable:
    """Which slot of a row belongs to which feature; slots are given in order of first appearance.

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

    @property
    def names(self) -> list[Hashable]:
        """The feature in each slot."""
        return list(self.slots)

    def add(self, names: Iterable[Hashable]) -> None:
        """Give slots to those of ``names`` that have none."""
        new = [name for name in names if name not in self.slots]
        for name in sorted(new, key=_by_name):
            self.slots[name] = len(self.slots)

    def keep(self, count: int) -> None:
        """Take the slots of all but the first ``count`` features back."""
        for name in self.names[count:]:
            del self.slots[name]

    def row(self, x: Mapping[Any, Any]) -> FloatArray:
        """The values of ``x`` in their slots: 0 where missing; names without a slot are ignored."""
        values = [0.0] * len(self.slots)
        for name, value in x.items():
            slot = self.slots.get(name)
            if slot is not None:
                values[slot] = value
        return np.array(values, dtype=np.float64)

    def rows(self, values: FloatArray, names: Iterable[Hashable]) -> FloatArray:
        """As ``row``, for ``values [N, K]`` of the features ``names``; NaN is missing."""
        placed = np.zeros((len(values), len(self.slots)))
        for column, name in enumerate(names):
            if name in self.slots:
                placed[:, self.slots[name]] = values[:, column]
        return np.nan_to_num(placed, copy=False, nan=0.0)


def present(x: Mapping[Any, Any]) -> Mapping[Any, Any]:
    """The features of ``x`` that have a value, all of them finite numbers."""
    if set(map(type, x.values())) <= _PLAIN and _are_finite(x.values()):
        return x
    there = {name: value for name, value in x.items() if not is_missing(value)}
    for name, value in there.items():
        if not isinstance(value, numbers.Real | np.bool_) or isinstance(value, np.timedelta64):
            raise InputError(
                f"the feature {name!r} is {value!r}: a number is needed; "
                f"river.preprocessing.OneHotEncoder makes numbers of names"
            )
        if not _are_finite([value]):
            raise InputError(f"the feature {name!r} is {value}: it must be finite, or left out")
    return there


def frame_values(frame: Any) -> FloatArray:
    """The numbers of a data frame, ``[N, K]``, with NaN where one is missing."""
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
    """None, pandas' NA and NaT, and NaN, the only number that differs from itself."""
    if value is None or type(value).__name__ in _PANDAS_MISSING:
        return True
    return isinstance(value, numbers.Real | np.datetime64) and bool(value != value)


def _are_finite(values: Iterable[Any]) -> bool:
    """Also of whole numbers beyond all floating ones, which a sum of integers might cancel."""
    try:
        return math.isfinite(math.fsum(values))
    except (OverflowError, ValueError):
        return False


def _by_name(name: Hashable) -> tuple[str, str]:
    return type(name).__name__, str(name)
