"""Record classes: strict numbers, no unknown keys, and errors of one line."""

import math
import reprlib
from collections.abc import Sequence
from dataclasses import field, fields
from functools import wraps
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform

from pydantic import ConfigDict, Field, PlainValidator, Strict, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError

_LARGEST = 2**63 - 1
_Class = TypeVar("_Class", bound=type)

# Strict: neither booleans, nor text, nor NumPy's integers are numbers of a record.
Label: TypeAlias = Annotated[int, Strict(), Field(ge=-_LARGEST, le=_LARGEST)]
Count: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=_LARGEST)]
Positive: TypeAlias = Annotated[int, Strict(), Field(ge=1, le=_LARGEST)]
NotNegative: TypeAlias = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]


class RecordError(ValueError):
    """A record, or a run directory, that cannot be used."""


def _number(value: object) -> object:
    """A finite number as it is: an integer stays one on disk."""
    whole = type(value) is int and -_LARGEST <= value <= _LARGEST
    if whole or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise PydanticCustomError("number", "Input should be a finite number")


Number: TypeAlias = Annotated[int | float, PlainValidator(_number)]


def record_error(
    error: ValidationError, positional: Sequence[str] = (), types: Sequence[str] = ()
) -> RecordError:
    """A validation error as one line; of several the first counts.

    Args:
        error: The error.
        positional: Names of the arguments that were given by position.
        types: The types of record there are, where any of them was expected.
    """
    first = error.errors(include_url=False)[0]
    kind, loc, given = first["type"], list(first["loc"]), reprlib.repr(first["input"])
    if kind == "value_error":  # of a check below
        return RecordError(str(first["ctx"]["error"]))
    if kind.startswith("union_tag"):
        named = reprlib.repr(first["ctx"].get("tag"))
        return RecordError(f"a record has one of the types {', '.join(types)}, not {named}")
    if loc and loc[0] in types:  # which record it is
        del loc[0]
    elif loc and isinstance(loc[0], int) and loc[0] < len(positional):
        loc[0] = positional[loc[0]]
    place = reprlib.repr(".".join(map(str, loc)))[1:-1] or "a record"
    if kind == "missing":
        return RecordError(f"{place} is missing")
    if kind == "unexpected_keyword_argument":
        return RecordError(f"{place} is an unknown key")
    return RecordError(f"{place} {first['msg'].removeprefix('Input ')}, not {given}")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record_class(cls: _Class) -> _Class:
    """Make a frozen pydantic dataclass that takes no further keys and raises ``RecordError``."""
    made: Any = dataclass(frozen=True, config=ConfigDict(extra="forbid"))(cls)
    construct = made.__init__
    positional = [each.name for each in fields(made) if not each.kw_only]

    @wraps(construct)
    def construct_or_refuse(self: object, *values: object, **named: object) -> None:
        try:
            construct(self, *values, **named)
        except ValidationError as error:
            raise record_error(error, positional) from None

    made.__init__ = construct_or_refuse
    checked: _Class = made
    return checked


def require(holds: bool, otherwise: str) -> None:
    """Raise ``RecordError(otherwise)`` unless ``holds``."""
    if not holds:
        raise RecordError(otherwise)


def require_at_most(most: int, **counts: float | None) -> None:
    """Raise ``RecordError`` for a count that is larger than ``most``."""
    for name, value in counts.items():
        require(value is None or value <= most, f"{name} must be at most {most}, not {value}")
