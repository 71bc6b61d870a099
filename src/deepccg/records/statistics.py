"""Intervals around a mean and around a fitted slope, both by Student's t."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt

LEVEL = 0.95


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
    n = len(values)
    mean = fmean(values)
    if n < 2:
        return Interval(mean, None, None, n)
    half = student_quantile(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def fit_line(x: npt.ArrayLike, y: npt.ArrayLike) -> Line | None:
    """The line through points, ``[N]`` each; ``None`` unless two of them differ in x.

    The interval takes the points as independent and equally noisy; it needs three.
    """
    across, up = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    n = len(across)
    if n < 2 or np.ptp(across) == 0:
        return None
    from_mean = across - across.mean()
    square = float(from_mean @ from_mean)
    slope = float(from_mean @ (up - up.mean())) / square
    intercept = float(up.mean()) - slope * float(across.mean())
    if n < 3:
        return Line(Interval(slope, None, None, n), intercept)
    residual = up - intercept - slope * across
    error = math.sqrt(float(residual @ residual) / (n - 2) / square)
    half = student_quantile(n - 2) * error
    return Line(Interval(slope, slope - half, slope + half, n), intercept)


def student_quantile(freedom: int) -> float:
    """How many standard errors the interval reaches to each side.

    >>> round(student_quantile(2), 3)
    4.303
    """
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + LEVEL) / 2))


def paired_difference(values: Mapping[int, float], others: Mapping[int, float]) -> Interval | None:
    """The mean of ``values - others`` over the seeds that both have; ``None`` if there are none.

    >>> paired_difference({0: 0.75, 1: 0.5}, {1: 0.25, 2: 0.5})
    Interval(value=0.25, low=None, high=None, n=1)
    """
    seeds = sorted(values.keys() & others.keys())
    return mean_interval([values[seed] - others[seed] for seed in seeds]) if seeds else None
