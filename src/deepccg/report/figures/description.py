"""What a figure shows, independent of the back end that draws it."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from deepccg.records import Estimate
from deepccg.report.figures.style import SeriesStyle

Pair: TypeAlias = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """A linear, logarithmic or categorical axis."""

    label: str  # the quantity and its unit
    low: float  # at the left or the bottom
    high: float  # at the right or the top; below ``low`` where the axis runs downwards
    ticks: tuple[tuple[float, str], ...] = ()
    grid: bool = False  # lines across the panel at the ticks
    log: bool = False
    categories: bool = False  # tick k names series k of the panel


@dataclass(frozen=True)
class Point:
    """A marker, with error bars between two values and a text beside it."""

    x: float
    y: float
    x_error: Pair | None = None
    y_error: Pair | None = None
    text: str = ""
    tooltip: str = ""
    hollow: bool = False


@dataclass(frozen=True)
class Bar:
    """A filled rectangle."""

    left: float
    right: float
    bottom: float
    top: float
    tooltip: str = ""


@dataclass(frozen=True)
class Series:
    """What belongs together: it has one colour and is shown or hidden as a whole."""

    label: str
    style: SeriesStyle | None = None
    colour: str = ""  # instead of a style: the same in light and dark
    line: tuple[Pair, ...] = ()
    band: tuple[Pair, ...] = ()  # lower and upper edge around each point of the line
    points: tuple[Point, ...] = ()
    bars: tuple[Bar, ...] = ()
    tooltip: str = ""
    legend: str = ""  # default: the label


@dataclass(frozen=True)
class Rule:
    """A line across the panel at a value of one axis."""

    value: float
    axis: Literal["x", "y"] = "x"
    kind: Literal["grid", "boundary", "zero", "now"] = "grid"


@dataclass(frozen=True)
class Text:
    """Centred text."""

    x: float
    y: float
    text: str
    on_dark: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes and what is drawn in them."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...] = ()  # in drawing order
    alt: str = ""  # the content in words, for those who hear the page
    rules: tuple[Rule, ...] = ()
    top: Axis | None = None  # a second axis with the range of ``x``
    image: npt.NDArray[np.uint8] | None = None  # ``[H, W, 3 or 4]``: fills the panel
    texts: tuple[Text, ...] = ()
    names: Literal["", "line ends", "points", "legend"] = ""  # of series, where no page names them
    # On the page, in pixels: the whole width, the plot area's height, and margins.
    width: float = 400  # about the column of a phone: text keeps its size there
    height: float = 196
    left: float = 40
    right: float = 12

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.series and self.image is None


@dataclass(frozen=True)
class Figure:
    """Panels that belong together; on paper one picture, on the page one after the other."""

    panels: tuple[Panel, ...]  # row by row
    caption: str = ""  # what a reader must know to read it
    columns: int = 1  # on paper
    legend_title: str = ""
    colour_label: str = ""  # meaning of the colours from 0 to 100, where there is a scale


def rounded_axis(
    label: str, values: Iterable[float], *, limits: Pair = (-math.inf, math.inf), about: int = 5
) -> Axis:
    """Return an axis around the values that begins and ends with a round number.

    >>> axis = rounded_axis("%", [12, 88])
    >>> (axis.low, axis.high), [text for _, text in axis.ticks]
    ((0.0, 100.0), ['0', '20', '40', '60', '80', '100'])
    """
    low, high = min(known := list(values)), max(known)
    if low == high:
        low, high = low - 1, high + 1
    ticks = [tick for tick in _round_numbers(low, high, about) if limits[0] <= tick <= limits[1]]
    return Axis(label, ticks[0], ticks[-1], _named(ticks), grid=True)


def axis_between(label: str, low: float, high: float, *, log: bool = False) -> Axis:
    """Return an axis with these ends and round numbers between them.

    >>> [text for _, text in axis_between("", 0.8, 30, log=True).ticks]
    ['1', '2', '5', '10', '20']
    """
    found = _log_numbers(low, high) if log else _round_numbers(low, high, 4)
    slack = 1e-9 * (high - low)
    ticks = _named(value for value in found if low - slack <= value <= high + slack)
    return Axis(label, low, high, ticks, log=log)


def category_axis(names: Sequence[str], most: int | None = None) -> Axis:
    """Return an axis that runs downwards, with at most ``most`` of the names at 0, 1, 2, ..."""
    every = -(-len(names) // most) if most else 1
    ticks = tuple((float(k), names[k]) for k in range(0, len(names), every))
    return Axis("", len(names) - 0.5, -0.5, ticks, categories=True)


def error_bar(number: Estimate) -> Pair:
    """Return the ends of one standard error to each side, in percent."""
    half = number.standard_error or 0
    return 100 * (number.mean - half), 100 * (number.mean + half)


def tick_text(value: float) -> str:
    """Format a number for an axis.

    >>> tick_text(12000.0), tick_text(0.25), tick_text(-0.0), tick_text(2e6)
    ('12,000', '0.25', '0', '2M')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:,g}M"
    return f"{value:z,.0f}" if value == round(value) else f"{value:g}"


def _named(ticks: Iterable[float]) -> tuple[tuple[float, str], ...]:
    return tuple((tick, tick_text(tick)) for tick in ticks)


def _round_numbers(low: float, high: float, about: int) -> list[float]:
    """Return round numbers around a range, at most one beyond each end.

    The finest steps that cut the range into at most ``about``; finer ones if fewer than two numbers
    lie within.

    >>> _round_numbers(3, 88, 5)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    if low == high:
        return [low]
    widest = (high - low) / about
    power = math.floor(math.log10(widest))
    steps = [head * 10.0**k for k in (power - 1, power, power + 1) for head in (1, 2, 2.5, 5)]
    fits = next(i for i, step in enumerate(steps) if step >= widest)
    for step in reversed(steps[: fits + 1]):
        first, last = _floor(low / step), -_floor(-high / step)
        found = [round(k * step, 12) for k in range(first, last + 1)]
        if sum(low <= number <= high for number in found) > 1:
            break
    return found


def _floor(value: float) -> int:
    """Return the floor, or the number that rounding has just missed."""
    nearest = round(value)
    return nearest if abs(value - nearest) < 1e-10 * max(1, abs(value)) else math.floor(value)


def _log_numbers(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 of each power of ten; more if the ends are near, fewer if they are far."""
    if high < 4 * low:
        return _round_numbers(low, high, 6)
    heads = (1, 1.5, 2, 3, 5, 7) if high < 10 * low else (1, 2, 5) if high < 2000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [round(head * 10.0**power, 12) for power in powers for head in heads]
