"""Search spaces: fields with lists of values or ranges of numbers."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from deepccg.core import Config, InputError
from deepccg.records import parse_toml

Kind: TypeAlias = Literal["lin", "log", "int"]
Point: TypeAlias = Mapping[str, Any]  # a value for each field

DIGITS = 4  # significant ones; no search is more exact
_HOW = "write FIELD=V1,V2,... or FIELD=log:LOW:HIGH (also lin, int; :N for a grid of N)"


@dataclass(frozen=True)
class Choice:
    """A field and the values it may take."""

    field: str
    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values to validate before a search: all of them."""
        return self.values


@dataclass(frozen=True)
class Range:
    """A field and the numbers it may take.

    Args:
        field: Its name, dotted.
        low: The smallest.
        high: The largest.
        kind: ``log``: each factor equally likely; ``lin``: each number; ``int``: each integer.
        points: How many of them make a grid; ``None`` for sampling only.
    """

    field: str
    low: float
    high: float
    kind: Kind
    points: int | None = None

    @property
    def ends(self) -> tuple[Any, ...]:
        """The values to validate before a search: the smallest and the largest."""
        return self.rounded(self.low), self.rounded(self.high)

    @property
    def values(self) -> tuple[Any, ...]:
        """The grid, evenly spaced by number or by factor."""
        if self.points is None:
            raise InputError(
                f"a grid needs values for {self.field}: write for example "
                f"{self.field}={self.kind}:{self.low:g}:{self.high:g}:5, or use --search optuna"
            )
        spaced = np.geomspace if self.kind == "log" else np.linspace
        numbers = spaced(self.low, self.high, self.points).tolist()
        return tuple(dict.fromkeys(self.rounded(number) for number in numbers))

    def rounded(self, number: float) -> float | int:
        """Round a number to what is tried and written.

        >>> Range("method.lr", 1e-3, 1.0, "log").rounded(0.0123456)
        0.01235
        """
        return round(number) if self.kind == "int" else float(f"{number:.{DIGITS}g}")


Axis: TypeAlias = Choice | Range


def parse_axis(text: str, fields: type[Config]) -> Axis:
    """Parse an axis as it is written on the command line.

    Args:
        text: ``FIELD=V1,V2`` or ``FIELD=log:LOW:HIGH``.
        fields: The method's configuration, whose fields need no ``method.`` before them.

    >>> from deepccg.methods import METHODS
    >>> parse_axis("strength=1,10", METHODS["ewc"].Config)
    Choice(field='method.strength', values=(1, 10))
    >>> parse_axis("method.lr=log:1e-3:1", METHODS["ewc"].Config)
    Range(field='method.lr', low=0.001, high=1.0, kind='log', points=None)
    """
    field, equals, given = text.partition("=")
    if not equals or not field.strip() or not given.strip():
        raise InputError(f"--space {text}: {_HOW}")
    field = field.strip()
    name = f"method.{field}" if field in fields.model_fields else field
    kind, colon, rest = given.partition(":")
    if colon and kind in ("lin", "log", "int"):
        return _range(name, "log" if kind == "log" else "lin" if kind == "lin" else "int", rest)
    values = tuple(_value(part) for part in given.split(","))
    if len(set(map(repr, values))) != len(values):
        raise InputError(f"--space {text} names a value twice")
    return Choice(name, values)


def grid_points(axes: Sequence[Axis]) -> Iterator[Point]:
    """Yield every combination, the last axis changing fastest."""
    fields = [axis.field for axis in axes]
    for values in itertools.product(*(axis.values for axis in axes)):
        yield dict(zip(fields, values, strict=True))


def _range(field: str, kind: Kind, text: str) -> Range:
    parts = text.split(":")
    try:
        low, high = float(parts[0]), float(parts[1])
        points = int(parts[2]) if len(parts) > 2 else None
    except (IndexError, ValueError):
        raise InputError(f"--space {field}={kind}:{text}: {_HOW}") from None
    valid = -np.inf < low < high < np.inf and (kind != "log" or low > 0) and len(parts) <= 3
    if not valid or (points is not None and not 2 <= points <= 1000):
        raise InputError(
            f"--space {field}={kind}:{text}: LOW must be below HIGH (above 0 for log), "
            f"and a grid has 2 to 1000 points"
        )
    return Range(field, low, high, kind, points)


def _value(text: str) -> Any:
    """Return a number, true or false, or else the word itself."""
    try:
        return parse_toml(f"value = {text.strip()}")["value"]
    except ValueError:
        return text.strip()
