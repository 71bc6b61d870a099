"""Student's t intervals of a mean and of a slope, and the points of a shift to fit one to."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from deepccg.records.schema import Shift

LEVEL = 0.95
# Shift as a Euclidean distance, or relative to the distances between embeddings.
ShiftScale: TypeAlias = Literal["distance", "relative"]
# What is drawn against shift: the change in accuracy, or what a frozen classifier would have lost.
ShiftMeasure: TypeAlias = Literal["accuracy_change", "misalignment"]


@dataclass(frozen=True)
class Interval:
    """A value and the interval that covers it at ``LEVEL``; no bounds where ``n`` is too small."""

    value: float
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Line:
    """A least-squares line: the slope with its interval, and where it meets the vertical axis."""

    slope: Interval
    intercept: float


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of at least one value; the interval needs two.

    >>> found = mean_interval([1.0, 2.0, 3.0])
    >>> round(found.low, 2), found.value, round(found.high, 2)
    (-0.48, 2.0, 4.48)
    """
    n, mean = len(values), fmean(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else 0.0
    return _interval(mean, error, n, n - 1)


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike) -> Line | None:
    """The line through points, ``[N]`` each; ``None`` unless two of them differ in x.

    The interval takes the points as independent and equally noisy; it needs three.
    """
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    n = len(across)
    if n < 2 or np.ptp(across) == 0:
        return None
    from scipy.stats import linregress  # here: slow to import, and few reports have a line

    found = linregress(across, up)
    error = float(found.stderr) if np.ptp(up) else 0.0  # of a level line SciPy's may be NaN
    return Line(_interval(float(found.slope), error, n, n - 2), float(found.intercept))


def _interval(value: float, standard_error: float, n: int, freedom: int) -> Interval:
    if freedom < 1:
        return Interval(value, None, None, n)
    from scipy.special import stdtrit  # here: the command line starts without SciPy

    half = float(stdtrit(freedom, (1 + LEVEL) / 2)) * standard_error
    return Interval(value, value - half, value + half, n)


def paired_difference(values: Mapping[int, float], others: Mapping[int, float]) -> Interval | None:
    """The mean of ``values - others`` over the seeds that both have; ``None`` if there are none.

    >>> paired_difference({0: 0.75, 1: 0.5}, {1: 0.25, 2: 0.5})
    Interval(value=0.25, low=None, high=None, n=1)
    """
    seeds = sorted(values.keys() & others.keys())
    return mean_interval([values[seed] - others[seed] for seed in seeds]) if seeds else None


def shift_points(
    shifts: Sequence[Shift], scale: ShiftScale, measure: ShiftMeasure
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return how far each batch moved the images, and what it did to their accuracy (a fraction).

    Args:
        shifts: The records of one or several runs.
        scale: ``distance``, or ``relative`` to the spread; where there is no spread no point.
        measure: ``accuracy_change`` or ``misalignment``.
    """
    pairs = [(getattr(shift, scale), getattr(shift, measure)) for shift in shifts]
    known = [pair for pair in pairs if pair[0] is not None]
    x, y = np.array(known, dtype=np.float64).reshape(-1, 2).T
    return x, y
