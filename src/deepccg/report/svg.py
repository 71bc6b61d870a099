"""Drawings as SVG text: small, sharp at any size, coloured by the page's style sheet."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from deepccg.report.palette import Look

Number = float | int
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


class Drawing:
    """An SVG in the making. Text and attributes are escaped.

    Args:
        width: In units that are pixels where the page has room.
        height: The same.
        title: What is drawn, for those who hear the page.
        description: What it shows.
        **attributes: Further ones of the whole, named as in ``add``.
    """

    def __init__(
        self,
        width: Number,
        height: Number,
        title: str,
        description: str = "",
        **attributes: str | Number | None,
    ) -> None:
        label = f"{title}. {description}" if description else title
        self._parts = [
            f'<svg viewBox="0 0 {_text(width)} {_text(height)}" role="img" '
            f'aria-label="{escape(label)}"{_attributes(attributes)}>'
        ]

    def add(self, tag: str, text: str | None = None, /, **attributes: str | Number | None) -> None:
        """An element; ``class_`` is ``class``, and an underscore within a name a hyphen."""
        opened = f"<{tag}{_attributes(attributes)}"
        self._parts.append(f"{opened}/>" if text is None else f"{opened}>{escape(text)}</{tag}>")

    @contextlib.contextmanager
    def group(self, tooltip: str = "", /, **attributes: str | Number | None) -> Iterator[None]:
        """Elements that belong together, with what a pointer over them is told."""
        self._parts.append(f"<g{_attributes(attributes)}>")
        if tooltip:
            self.add("title", tooltip)
        yield
        self._parts.append("</g>")

    def text(
        self, x: Number, y: Number, text: str, *, anchor: str = "start", class_: str = "tick"
    ) -> None:
        """A word at a place; ``y`` is its base line."""
        self.add("text", text, x=x, y=y, text_anchor=anchor, class_=class_)

    def line(
        self, x1: Number, y1: Number, x2: Number, y2: Number, class_: str, **more: str
    ) -> None:
        """A straight line."""
        self.add("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_, **more)

    def polyline(self, points: Sequence[tuple[Number, Number]], look: Look) -> None:
        """A line through points, in a row's dashes."""
        path = "M" + "L".join(f"{_text(x)} {_text(y)}" for x, y in points)
        self.add("path", d=path, class_="line", stroke_dasharray=look.dashes or None)

    def marker(self, x: Number, y: Number, look: Look, *, hollow: bool = False) -> None:
        """A point, in a row's shape."""
        self.add("path", d=_SHAPES[look.marker](x, y), class_="hollow" if hollow else "dot")

    def markup(self) -> Markup:
        """The whole drawing."""
        return Markup("".join(self._parts) + "</svg>")  # noqa: S704  (all parts are escaped)


@dataclass(frozen=True)
class Scale:
    """From values to places, linearly or by logarithm."""

    low: float
    high: float
    first: float
    last: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        low, high, at = (
            map(math.log, (self.low, self.high, value))
            if self.logarithmic
            else (self.low, self.high, value)
        )
        return self.first + (at - low) / ((high - low) or 1.0) * (self.last - self.first)

    def ticks(self, about: int = 5) -> list[float]:
        """Round numbers within the scale."""
        return (
            log_ticks(self.low, self.high)
            if self.logarithmic
            else ticks(self.low, self.high, about)
        )


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers between two, both included where they are round.

    >>> ticks(0, 100), ticks(0.12, 0.31, 4)
    ([0.0, 20.0, 40.0, 60.0, 80.0, 100.0], [0.15, 0.2, 0.25, 0.3])
    """
    step = _round_step((high - low) / max(about, 1))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """1, 2, 5 of each power of ten between two numbers; more if they are near, fewer if far apart.

    >>> log_ticks(0.8, 30), log_ticks(0.45, 1.9)
    ([1.0, 2.0, 5.0, 10.0, 20.0], [0.5, 0.7, 1.0, 1.5])
    >>> log_ticks(1, 1e6)
    [1.0, 10.0, 100.0, 1000.0, 10000.0, 100000.0, 1000000.0]
    """
    if high < 4 * low:
        return ticks(low, high, 4)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    heads: tuple[float, ...] = (1, 2, 5) if len(powers) <= 4 else (1,)
    if high < 10 * low:
        heads = (1, 1.5, 2, 3, 5, 7)
    found = [round(head * 10.0**power, 12) for power in powers for head in heads]
    return [value for value in found if low * (1 - 1e-9) <= value <= high * (1 + 1e-9)]


def round_range(values: Sequence[float], about: int = 5) -> tuple[float, float]:
    """Round numbers around all values.

    >>> round_range([12.0, 88.0]), round_range([5.0])
    ((0.0, 100.0), (4.0, 6.0))
    """
    low, high = min(values), max(values)
    if low == high:
        return low - 1, high + 1
    step = _round_step((high - low) / max(about - 1, 1))
    return math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step


def tick(value: float) -> str:
    """12,000 and 0.25.

    >>> tick(12000.0), tick(0.25), tick(-0.0)
    ('12,000', '0.25', '0')
    """
    if abs(value) >= 1e6:
        return f"{value / 1e6:,g}M"
    return f"{value:z,.0f}" if value == round(value) else f"{value:g}"


def _round_step(rough: float) -> float:
    if not rough > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(rough))
    return next(step * power for step in _STEPS if step * power >= rough * (1 - 1e-9))


def _attributes(attributes: dict[str, str | Number | None]) -> str:
    return "".join(
        f' {name.strip("_").replace("_", "-")}="{escape(_text(value))}"'
        for name, value in attributes.items()
        if value is not None
    )


def _text(value: str | Number) -> str:
    """Numbers as short as a tenth of a unit allows."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def _circle(x: Number, y: Number) -> str:
    return f"M{_text(x - 3.5)} {_text(y)}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z"


def _polygon(*corners: tuple[float, float]) -> Callable[[Number, Number], str]:
    def path(x: Number, y: Number) -> str:
        return "M" + "L".join(f"{_text(x + dx)} {_text(y + dy)}" for dx, dy in corners) + "z"

    return path


_SHAPES: dict[str, Callable[[Number, Number], str]] = {
    "circle": _circle,
    "square": _polygon((-3.2, -3.2), (3.2, -3.2), (3.2, 3.2), (-3.2, 3.2)),
    "triangle": _polygon((0, -4.2), (4, 3), (-4, 3)),
    "diamond": _polygon((0, -4.6), (4.6, 0), (0, 4.6), (-4.6, 0)),
}
