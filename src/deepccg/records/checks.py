"""Checks of single values, shared by all records. Each failure is one line naming the value."""

import math
import reprlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_LARGEST = 2**63 - 1


class RecordError(ValueError):
    """A record, or a run directory, that cannot be used."""


def require(holds: bool, otherwise: str) -> None:
    """Raise ``RecordError(otherwise)`` unless ``holds``."""
    if not holds:
        raise RecordError(otherwise)


def integer(name: str, value: object) -> None:
    """``value`` is a plain integer; booleans and NumPy scalars are not."""
    plain = type(value) is int and -_LARGEST <= value <= _LARGEST
    require(plain, f"{name} must be an integer, not {reprlib.repr(value)}")


def count(name: str, value: int, *, at_least: int = 0, at_most: int | None = None) -> None:
    """``value`` is an integer between the bounds."""
    integer(name, value)
    require(value >= at_least, f"{name} must be at least {at_least}, not {value}")
    require(at_most is None or value <= at_most, f"{name} must be at most {at_most}, not {value}")


def finite(name: str, value: object) -> None:
    """``value`` is a plain number, neither infinite nor NaN."""
    plain = (type(value) is int and -_LARGEST <= value <= _LARGEST) or (
        isinstance(value, float) and math.isfinite(value)
    )
    require(plain, f"{name} must be a finite number, not {reprlib.repr(value)}")


def items(name: str, value: object) -> list[Any]:
    """``value``, which must be a list."""
    if not isinstance(value, list):
        raise RecordError(f"{name} must be a list, not {reprlib.repr(value)}")
    return value


def fields_of(record: "type[DataclassInstance]", data: object) -> dict[str, Any]:
    """The fields of ``record`` in ``data``: all of them, and besides ``type`` nothing else."""
    if not isinstance(data, dict):
        raise RecordError(f"{record.__name__} must be an object, not {reprlib.repr(data)}")
    names = {spec.name for spec in fields(record)}
    given = data.keys() - {"type"}
    problems = [f"lacks {name!r}" for name in sorted(names - given)]
    problems += [f"has an unknown key {reprlib.repr(name)}" for name in sorted(given - names)]
    require(not problems, f"{record.__name__} {' and '.join(problems[:3])}")
    return {name: data[name] for name in names}
