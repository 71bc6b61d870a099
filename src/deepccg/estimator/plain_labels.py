"""What may be a label, and labels of several types beside each other: nothing is rounded."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError, StateMismatch
from deepccg.estimator.features import is_missing

Labels = npt.NDArray[np.generic]

_LIMIT = 2**63  # of int64
_LARGEST_EXACT = 2**53  # up to which float64 has every whole number
_MOST_BYTES = 2**30  # of all labels
_MISSING = "y contains NaN or None: every example needs a label"


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


def restored_labels(labels: list[Any], kind: str) -> Labels:
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
