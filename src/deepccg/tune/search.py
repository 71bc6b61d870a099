"""Search spaces, and the search for the point with the highest score: a grid, or Optuna."""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np

from deepccg.core import Config, InputError
from deepccg.records import parse_toml

Kind: TypeAlias = Literal["lin", "log", "int"]
Point: TypeAlias = Mapping[str, Any]  # a value for each field
# Returns the score of each point, higher is better; None for a point that failed.
Score: TypeAlias = Callable[[Sequence[Point]], Sequence[float | None]]

DIGITS = 4  # significant ones; no search is more exact
MAX_POINTS = 10_000
SAMPLER_SEED = 0
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

    def rounded(self, value: Any) -> Any:
        """Return the value itself."""
        return value


@dataclass(frozen=True)
class Range:
    """A field and the numbers it may take."""

    field: str
    low: float
    high: float
    kind: Kind  # log: each factor is equally likely; lin: each number; int: each integer
    points: int | None = None  # how many of them make a grid; None for sampling only

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

    The ``fields`` of the method's configuration need no ``method.`` before them.

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
    if colon and kind in get_args(Kind):
        return _range(name, cast(Kind, kind), rest)
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


def grid_search(axes: Sequence[Axis], score: Score) -> list[Point]:
    """Score every combination, all at once; returns the points in order."""
    size = math.prod(len(axis.values) for axis in axes)
    if size > MAX_POINTS:
        raise InputError(f"the grid has {size:,} points; at most {MAX_POINTS:,} are possible")
    points = list(grid_points(axes))
    score(points)
    return points


def optuna_search(
    axes: Sequence[Axis], score: Score, trials: int, together: int = 1
) -> list[Point]:
    """Score points that Optuna's tree-structured Parzen estimator suggests; returns them in order.

    The same scores give the same suggestions. So an interrupted search is repeated from its
    beginning, which costs nothing where ``score`` reads finished runs back. If several points are
    suggested ``together``, more processors are used, and each suggestion is less informed.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise InputError(
            "--search optuna needs Optuna: pip install 'deepccg[tune]', or use --search grid"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=SAMPLER_SEED, constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    space = {axis.field: _distribution(axis) for axis in axes}
    found: list[Point] = []
    while len(found) < trials:
        asked = [study.ask(space) for _ in range(min(together, trials - len(found)))]
        points = [{axis.field: axis.rounded(t.params[axis.field]) for axis in axes} for t in asked]
        for trial, value in zip(asked, score(points), strict=True):
            study.tell(trial, value, state=optuna.trial.TrialState.FAIL if value is None else None)
        found += points
    return found


def _distribution(axis: Axis) -> Any:
    """Return the axis as Optuna's distribution."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(axis, Choice):
        return CategoricalDistribution(axis.values)
    if axis.kind == "int":
        return IntDistribution(round(axis.low), round(axis.high))
    return FloatDistribution(axis.low, axis.high, log=axis.kind == "log")
