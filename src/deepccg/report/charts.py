"""Charts of methods against each other: along the stream, side by side, and against their cost."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from deepccg.records import Estimate, Mode
from deepccg.report.accuracy_plot import accuracy_over_time
from deepccg.report.comparisons import Row
from deepccg.report.costs import Point
from deepccg.report.formatting import in_percent, percent
from deepccg.report.palette import Look
from deepccg.report.svg import Drawing, Scale, round_range, tick

WIDTH = 400  # about the column of a phone: text keeps its size there
_HEIGHT = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 12, 24, 40
_MOST_POINTS = 200  # of a line
_MARKED = 30
_DOTS_TOP = 6
_LABELS = 138  # for the names of methods at the left
_LONGEST_LABEL = 20

Looks = dict[str, Look]


@dataclass(frozen=True)
class Entry:
    """One method in a chart of dots.

    Args:
        row: Whose.
        ours: The number.
        paper: The paper's.
    """

    row: Row
    ours: Estimate
    paper: Estimate | None = None


def accuracy_chart(rows: Sequence[Row], mode: Mode, looks: Looks) -> Markup | None:
    """Accuracy on what was met so far, mean and standard error over seeds, along the stream.

    ``None`` if no row was scored more than once. Offline rows have no such time.
    """
    curves = {}
    for row in rows:
        curve = {} if row.offline else accuracy_over_time(row.evaluations, mode)
        if len(curve) > 1:
            curves[row.label] = (row, _thinned(list(curve.items())))
    if not curves:
        return None
    reach = [
        100 * (at.mean + sign * (at.standard_error or 0))
        for _, curve in curves.values()
        for _, at in curve
        for sign in (-1, 1)
    ]
    low, high = round_range(reach)
    end = max(curve[-1][0] for _, curve in curves.values())
    names = ", ".join(f"{label} ends at {percent(c[-1][1])}" for label, (_, c) in curves.items())
    drawing = Drawing(WIDTH, _HEIGHT, f"{mode.capitalize()}-incremental accuracy over time", names)
    x = Scale(0, end, _LEFT, WIDTH - _RIGHT)
    y = Scale(max(low, 0), min(high, 100), _HEIGHT - _BOTTOM, _TOP)
    frame(drawing, x, y, "examples seen", "%")
    for label, (row, points) in curves.items():
        _draw_curve(drawing, row, points, looks[label], x, y)
    return drawing.markup()


def dot_chart(entries: Sequence[Entry], title: str, axis: str, looks: Looks) -> Markup:
    """A number of each method with its standard error; the paper's hollow below it.

    Methods stand at distances of ``data-step``, so that a script can close the gaps of those it
    hides; what it then moves up is of class ``foot``.
    """
    step = 30 if any(entry.paper for entry in entries) else 22
    height = _DOTS_TOP + step * len(entries) + _BOTTOM
    numbers = [number for entry in entries for number in (entry.ours, entry.paper) if number]
    ends = [100 * (n.mean + s * (n.standard_error or 0)) for n in numbers for s in (-1, 1)]
    low, high = round_range(ends)
    told = "; ".join(
        f"{entry.row.label} {percent(entry.ours)}"
        + (f", paper {percent(entry.paper)}" if entry.paper else "")
        for entry in entries
    )
    drawing = Drawing(WIDTH, height, title, told, data_step=step)
    x = Scale(low, high, _LABELS + 8, WIDTH - 52)
    _vertical_grid(drawing, x, height - _BOTTOM, axis)
    for place, entry in enumerate(entries):
        middle = _DOTS_TOP + step * (place + 0.5)
        look = looks[entry.row.label]
        with drawing.group(data_method=entry.row.method, class_=f"series s{look.slot}"):
            drawing.text(_LABELS, middle + 4, _short(entry.row.label), anchor="end", class_="label")
            offset = 6 if entry.paper else 0
            _draw_number(drawing, entry.ours, x, middle - offset, look)
            if entry.paper is not None:
                with drawing.group(f"paper: {percent(entry.paper)}", class_="paper"):
                    _draw_number(drawing, entry.paper, x, middle + 7, look, hollow=True)
    return drawing.markup()


def scatter_chart(points: Sequence[Point], axis: str, looks: Looks) -> Markup:
    """Accuracy against what it cost, the cost by its logarithm; at least one point."""
    ends = [100 * (v.mean + s * (v.standard_error or 0)) for _, _, v in points for s in (-1, 1)]
    low, high = round_range(ends)
    costs = [cost.mean for _, cost, _ in points]
    told = "; ".join(f"{row.label}: {_cost(c.mean)}, {percent(v)} %" for row, c, v in points)
    drawing = Drawing(WIDTH, _HEIGHT, f"Accuracy against {axis}", told)
    x = Scale(min(costs) / 1.3, max(costs) * 1.3, _LEFT, WIDTH - _RIGHT, logarithmic=True)
    y = Scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    frame(drawing, x, y, axis, "%")
    for row, cost, value in points:
        look = looks[row.label]
        tooltip = f"{row.label}: {_cost(cost.mean)} {axis}, {percent(value)} %"
        with drawing.group(tooltip, data_method=row.method, class_=f"series s{look.slot}"):
            at, half = 100 * value.mean, 100 * (value.standard_error or 0)
            drawing.line(x(cost.mean), y(at - half), x(cost.mean), y(at + half), "error")
            drawing.marker(x(cost.mean), y(at), look)
    return drawing.markup()


def frame(drawing: Drawing, x: Scale, y: Scale, xlabel: str, ylabel: str) -> None:
    """Quiet lines for the vertical scale, numbers for both, and what they are."""
    for value in y.ticks():
        drawing.line(x.first, y(value), x.last, y(value), "grid")
        drawing.text(x.first - 6, y(value) + 4, tick(value), anchor="end")
    for value in x.ticks(4):
        drawing.text(x(value), y.first + 16, tick(value), anchor="middle")
    drawing.text(x.last, y.first + 33, xlabel, anchor="end", class_="axis")
    drawing.text(0, y.last - 13, ylabel, class_="axis")


def _vertical_grid(drawing: Drawing, x: Scale, bottom: float, axis: str) -> None:
    for value in x.ticks(4):
        drawing.line(x(value), _DOTS_TOP, x(value), bottom, "grid")
    with drawing.group(class_="foot"):
        for value in x.ticks(4):
            drawing.text(x(value), bottom + 16, tick(value), anchor="middle")
        drawing.text(WIDTH - _RIGHT, bottom + 33, axis, anchor="end", class_="axis")


def _draw_curve(
    drawing: Drawing,
    row: Row,
    curve: Sequence[tuple[int, Estimate]],
    look: Look,
    x: Scale,
    y: Scale,
) -> None:
    with drawing.group(data_method=row.method, class_=f"series s{look.slot}"):
        upper = [(x(s), y(100 * (at.mean + (at.standard_error or 0)))) for s, at in curve]
        lower = [(x(s), y(100 * (at.mean - (at.standard_error or 0)))) for s, at in curve]
        corners = " ".join(f"{a:.1f},{b:.1f}" for a, b in (*upper, *reversed(lower)))
        drawing.add("polygon", points=corners, class_="band")
        drawing.polyline([(x(seen), y(100 * at.mean)) for seen, at in curve], look)
        if len(curve) <= _MARKED:
            for seen, at in curve:
                with drawing.group(f"{row.label} after {seen:,} examples: {percent(at)} %"):
                    drawing.marker(x(seen), y(100 * at.mean), look)


def _draw_number(
    drawing: Drawing, number: Estimate, x: Scale, y: float, look: Look, *, hollow: bool = False
) -> None:
    at, half = 100 * number.mean, 100 * (number.standard_error or 0)
    drawing.line(x(at - half), y, x(at + half), y, "error")
    drawing.marker(x(at), y, look, hollow=hollow)
    drawing.text(max(x(at + half), x(at) + 4) + 5, y + 4, in_percent(number.mean), class_="value")


def _thinned(points: list[tuple[int, Estimate]]) -> list[tuple[int, Estimate]]:
    """At most so many, the last among them."""
    every = -(-len(points) // _MOST_POINTS)
    return points[::-1][::every][::-1]


def _short(label: str) -> str:
    return label if len(label) <= _LONGEST_LABEL else label[: _LONGEST_LABEL - 1] + "…"


def _cost(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
