"""Data frames of any library, column by column: numbers, and categories as text."""

import datetime
import decimal
import numbers
from collections.abc import Container
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from deepccg.core import InputError
from deepccg.estimator.columns import Categories, Columns, Numbers
from deepccg.estimator.features import is_missing

_DATES = (datetime.date, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


class Frame(NamedTuple):
    """What a data frame holds: ``numbers [N, F]``, NaN where missing or text; texts by position."""

    numbers: Numbers
    texts: dict[int, list[str | None]]
    declared: dict[int, list[str]]  # values that a category type lists

    def columns(self) -> Columns:
        """Return columns like these, of which nothing was learned."""
        slots = {i: Categories.of(self.texts[i], self.declared[i]) for i in self.texts}
        return Columns.of([slots.get(i) for i in range(self.numbers.shape[1])])


def as_frame(x: Any) -> Any | None:
    """Return a data frame of whatever library as one of narwhals; else ``None``."""
    try:
        frame = nw.from_native(x, eager_only=True, pass_through=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"X cannot be read: {' '.join(str(error).split())}") from None
    return frame if isinstance(frame, nw.DataFrame) else None


def all_numbers(frame: Any) -> bool:
    """Return whether all columns are of a type of numbers, so that NumPy reads them at once."""
    return all(map(_is_number, frame.schema.dtypes()))


def read_frame(frame: Any, texts: Container[int] | None = None) -> Frame:
    """Return the values of a data frame.

    Args:
        frame: Of narwhals.
        texts: The positions of the columns that held text when learning began, if it has.
    """
    single = all(kind == nw.Float32 for kind in frame.schema.dtypes() if kind.is_numeric())
    found = Frame(np.full(frame.shape, np.nan, np.float32 if single else np.float64), {}, {})
    for i, series in enumerate(frame.iter_columns()):
        values = _values(series)
        is_text = _is_text(series, values)
        as_text = series.dtype == nw.String if is_text is None else is_text
        if texts is not None:
            as_text = i in texts
            if is_text not in (as_text, None):
                before, now = ("text", "numbers") if as_text else ("numbers", "text")
                raise InputError(
                    f"the column {series.name!r} held {before} when learning began and now holds "
                    f"{now}: convert it"
                )
        if as_text:
            found.texts[i] = [None if is_missing(value) else _as_text(value) for value in values]
            found.declared[i] = _declared(series)
        elif is_text is not None:
            found.numbers[:, i] = [np.nan if is_missing(value) else value for value in values]
    if np.isinf(found.numbers).any():
        raise InputError("X contains infinity: values must be finite, or missing")
    return found


def _values(series: Any) -> Any:
    """Return a column's values; refuse what is neither number nor text."""
    kind = series.dtype
    if kind.is_temporal():
        raise _dates(series)
    if kind.is_nested() or kind == nw.Binary:
        raise InputError(f"the column {series.name!r} holds {kind}: one number or text is needed")
    return series.to_numpy() if _is_number(kind) else series.to_list()


def _is_number(kind: Any) -> bool:
    return bool(kind.is_integer() or kind.is_float())


def _is_text(series: Any, values: Any) -> bool | None:
    """Return whether a column holds text or categories; ``None`` if all of it is missing."""
    if series.dtype in (nw.Categorical, nw.Enum):
        return True
    if _is_number(series.dtype):
        return None if bool(np.isnan(values).all()) else False
    types = {type(value) for value in values if not is_missing(value)}
    if not types:
        return None
    if all(issubclass(each, str) for each in types):
        return True
    if all(issubclass(each, numbers.Real | decimal.Decimal | np.bool_) for each in types):
        return False
    if any(issubclass(each, _DATES) or hasattr(each, "to_timestamp") for each in types):
        raise _dates(series)
    held = " and ".join(sorted(each.__name__ for each in types))
    raise InputError(f"the column {series.name!r} holds {held}: make all of it numbers, or text")


def _as_text(value: Any) -> str:
    """Return the name of a category; a whole number has one, whatever its type."""
    whole = isinstance(value, numbers.Real) and float(value).is_integer()
    return str(int(value)) if whole and not isinstance(value, bool) else str(value)


def _declared(series: Any) -> list[str]:
    kind = series.dtype
    if kind == nw.Enum:
        return [_as_text(value) for value in kind.categories]
    if kind == nw.Categorical and series.implementation.is_pandas_like():
        return [_as_text(value) for value in series.to_native().dtype.categories]
    return []


def _dates(series: Any) -> InputError:
    return InputError(
        f"the column {series.name!r} holds dates or times: give numbers, such as the days since "
        f"a first day, or the month"
    )
