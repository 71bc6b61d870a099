"""Panels as static SVG for the page: escaped, and coloured by its style sheet alone."""

import base64
import io
import math
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from deepccg.report.figures.description import Axis, Bar, Panel, Point, Rule, Series
from deepccg.report.figures.style import SeriesStyle

_LETTER = 6.5  # pixels, about the width of one in a label
_SHAPES = {  # paths around the origin
    "circle": "M-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "square": "M-3.2-3.2h6.4v6.4h-6.4z",
    "triangle": "M0-4.2L4 3h-8z",
    "diamond": "M0-4.6L4.6 0 0 4.6-4.6 0z",
}


def svg(panel: Panel) -> Markup:
    """Draw a panel.

    In a panel with one method per row, rows are ``data-step`` apart and what stands below them is
    of class ``foot``, so that a script can close the gaps of methods it hides.
    """
    drawing = _Drawing(panel)
    filtered = panel.y.categories and any(s.style and s.style.method for s in panel.series)
    return element(
        "svg",
        *drawing.axes(),
        *(drawing.rule(rule) for rule in panel.rules),
        *(drawing.series(k, each) for k, each in enumerate(panel.series)),
        viewBox=f"0 0 {_number(panel.width)} {_number(drawing.bottom + drawing.foot)}",
        role="img",
        aria_label=f"{panel.title}. {panel.alt}" if panel.alt else panel.title,
        data_step=panel.height / len(panel.series) if filtered else None,
    )


def swatch(style: SeriesStyle) -> Markup:
    """Draw the line and marker of a series, for a legend."""
    parts = _line([(1, 6), (27, 6)], style), _marker(14, 6, style)
    group = element("g", *parts, class_=f"series s{style.slot}")
    return element("svg", group, viewBox="0 0 28 12", role="img", aria_label="colour")


def element(tag: str, *children: str, **attributes: str | float | None) -> Markup:
    """Return an element, its attributes and all children that are no markup escaped.

    ``class_`` is ``class``, ``_`` within a name a hyphen; what is ``None`` is left out.
    """
    named = "".join(
        f' {name.strip("_").replace("_", "-")}="{escape(_number(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup(f"<{tag}{named}/>")  # noqa: S704  (the attributes are escaped)
    inside = Markup("").join(children)
    return Markup(f"<{tag}{named}>{inside}</{tag}>")  # noqa: S704  (both are escaped)


class _Drawing:
    """The layout of a panel, and its elements."""

    def __init__(self, panel: Panel) -> None:
        self.panel = panel
        self.left, self.right = panel.left, panel.width - panel.right
        self.top = 24.0 if panel.y.label or panel.top else 6.0
        self.bottom = self.top + panel.height
        self.foot = 40 if panel.x.label else 20
        self.x = _scale(panel.x, self.left, self.right)
        self.y = _scale(panel.y, self.bottom, self.top)

    def axes(self) -> Iterator[Markup]:
        """Everything but the series, to which the names of categories belong."""
        panel = self.panel
        if panel.image is not None:
            place = {"x": self.left, "y": self.top, "width": self.right - self.left}
            how = {"preserveAspectRatio": "none", "class": "pixels"}
            yield element("image", href=_png(panel.image), **place, height=panel.height, **how)
        yield from (self.rule(Rule(value, "x")) for value, _ in panel.x.ticks if panel.x.grid)
        yield from (self.rule(Rule(value, "y")) for value, _ in panel.y.ticks if panel.y.grid)
        for value, name in () if panel.y.categories else panel.y.ticks:
            yield _text(self.left - 6, self.y(value) + 4, name, "tick", "end")
        if panel.y.label:
            yield _text(0, self.top - 13, panel.y.label, "axis", "start")
        numbers = [_text(self.x(v), self.bottom + 16, name, "tick") for v, name in panel.x.ticks]
        label = _text(panel.width - 12, self.bottom + 33, panel.x.label, "axis", "end")
        yield element("g", *numbers, *([label] if panel.x.label else []), class_="foot")
        for text in panel.texts:
            class_ = "on-dark" if text.on_dark else "on-light"
            yield _text(self.x(text.x), self.y(text.y) + 4, text.text, class_)
        if panel.top:
            yield _text(self.left - 8, self.top - 8, panel.top.label, "axis", "end")
            for value, name in panel.top.ticks:
                yield _text(self.x(value), self.top - 8, name, "tick")

    def series(self, number: int, series: Series) -> Markup:
        """A group of everything that belongs to a series, with its tooltip."""
        style = series.style or SeriesStyle(0)
        parts = [element("title", series.tooltip)] if series.tooltip else []
        name = dict(self.panel.y.ticks).get(number) if self.panel.y.categories else None
        if name is not None:
            most = int((self.left - 8) / _LETTER)
            short = name if len(name) <= most else name[: most - 1] + "…"
            parts.append(_text(self.left - 8, self.y(number) + 4, short, "label", "end"))
        if series.band:
            pairs = list(zip(series.line, series.band, strict=True))
            edges = [(x, low) for (x, _), (low, _) in pairs]
            edges += [(x, high) for (x, _), (_, high) in reversed(pairs)]
            corners = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in edges)
            parts.append(element("polygon", points=corners, class_="band"))
        if series.line:
            parts.append(_line([(self.x(x), self.y(y)) for x, y in series.line], style))
        parts += [self.point(point, style) for point in series.points]
        parts += [self.bar(bar, series.colour or None) for bar in series.bars]
        class_ = f"series s{style.slot}" if series.style else None
        which = {"data_method": style.method, "data_label": series.label} if style.method else {}
        return element("g", *parts, class_=class_, **which)

    def point(self, point: Point, style: SeriesStyle) -> Markup:
        """A marker with its error bars, text and tooltip."""
        x, y = self.x(point.x), self.y(point.y)
        parts = [element("title", point.tooltip)] if point.tooltip else []
        end = x + 4
        if point.x_error:
            low, high = map(self.x, point.x_error)
            end = max(end, high)
            parts.append(element("line", x1=low, y1=y, x2=high, y2=y, class_="error"))
        if point.y_error:
            low, high = map(self.y, point.y_error)
            parts.append(element("line", x1=x, y1=low, x2=x, y2=high, class_="error"))
        parts.append(_marker(x, y, style, hollow=point.hollow))
        if point.text:
            parts.append(_text(end + 5, y + 4, point.text, "value", "start"))
        if len(parts) == 1:
            return parts[0]
        return element("g", *parts, class_="paper" if point.hollow else None)

    def bar(self, bar: Bar, colour: str | None) -> Markup:
        """A rectangle, wide enough to be seen."""
        x, y, height = self.x(bar.left), self.y(bar.top), self.y(bar.bottom) - self.y(bar.top)
        size = {"width": max(self.x(bar.right) - x, 0.5), "height": height}
        parts = [element("title", bar.tooltip)] if bar.tooltip else []
        return element("rect", *parts, x=x, y=y, **size, rx=min(2, height / 4), fill=colour)

    def rule(self, rule: Rule) -> Markup:
        """A line across the panel; one that a script moves has the ends of its way."""
        x = [self.x(rule.value)] * 2 if rule.axis == "x" else [self.left, self.right]
        y = [self.y(rule.value)] * 2 if rule.axis == "y" else [self.top, self.bottom]
        way = {"data_first": self.left, "data_last": self.right} if rule.kind == "now" else {}
        return element("line", x1=x[0], y1=y[0], x2=x[1], y2=y[1], class_=rule.kind, **way)


def _scale(axis: Axis, first: float, last: float) -> Callable[[float], float]:
    """Map values of an axis to pixels."""
    convert = math.log if axis.log else float
    low, high = convert(axis.low), convert(axis.high)
    return lambda value: first + (convert(value) - low) / ((high - low) or 1.0) * (last - first)


def _text(x: float, y: float, text: str, class_: str, anchor: str = "middle") -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def _line(points: list[tuple[float, float]], style: SeriesStyle) -> Markup:
    path = "M" + "L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    dashes = " ".join(map(_number, style.dashes)) or None
    return element("path", d=path, class_="line", stroke_dasharray=dashes)


def _marker(x: float, y: float, style: SeriesStyle, *, hollow: bool = False) -> Markup:
    place = f"translate({_number(x)} {_number(y)})"
    class_ = "hollow" if hollow else "dot"
    return element("path", d=_SHAPES[style.marker], transform=place, class_=class_)


def _number(value: str | float) -> str:
    """Numbers as short as a tenth of a pixel allows."""
    return value if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def _png(pixels: npt.NDArray[np.uint8]) -> str:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(pixels).save(content, format="PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
