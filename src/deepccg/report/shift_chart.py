"""Representation shift: what happens to the first task's accuracy when a batch moves its images."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from deepccg.records import Shift, ShiftScale, fit_line, shift_points
from deepccg.report.charts import WIDTH, Entry, Looks, dot_chart, frame
from deepccg.report.comparisons import Row
from deepccg.report.figures import Figure
from deepccg.report.svg import Drawing, Scale, round_range

_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 260, 42, 12, 24, 40
_BINS = 20
_AXES: dict[ShiftScale, str] = {
    "relative": "shift / mean pairwise distance",
    "distance": "shift, in the embedding's units",
}


def shift_figures(rows: Sequence[Row], looks: Looks) -> list[Figure]:
    """Shift against accuracy, scaled and not, and misalignment; none where nothing was recorded."""
    followed = [(row, shifts) for row in rows if (shifts := row.shifts)]
    if not followed:
        return []
    told = (
        "Each point: a twentieth of all batches, by how far they moved the first task's test "
        "images. Up: these images are classified better after the batch. Lines: least squares."
    )
    why = (
        "Mean over batches of the accuracy on the new embeddings with the classifier from before "
        "the step minus that with the one from after it. Far below 0: the old classifier no "
        "longer fits, the new one does."
    )
    entries = [
        Entry(row, value)
        for row, _ in followed
        if (value := row.mean_of(_mean_misalignment(run.shifts) for run in row.runs.values()))
    ]
    figures = [
        Figure("Shift and accuracy", _chart(followed, "relative", looks), told),
        Figure("The same, unscaled", _chart(followed, "distance", looks), told),
    ]
    if entries:
        drawn = dot_chart(entries, "Misalignment", "points of accuracy", looks)
        figures.append(Figure("Misalignment", drawn, why))
    return figures


def binned(
    x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], bins: int = _BINS
) -> list[tuple[float, float]]:
    """Means of groups of about equal size, by increasing x.

    >>> binned(np.array([3.0, 1.0, 2.0, 4.0]), np.array([30.0, 10.0, 20.0, 40.0]), bins=2)
    [(1.5, 15.0), (3.5, 35.0)]
    """
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    return [(float(x[part].mean()), float(y[part].mean())) for part in parts if len(part)]


def _chart(
    followed: Sequence[tuple[Row, list[Shift]]], scale: ShiftScale, looks: Looks
) -> Markup | None:
    series = []
    for row, shifts in followed:
        x, y = shift_points(shifts, scale, "accuracy_change")
        if len(x):
            series.append((row, binned(x, 100 * y), fit_line(x, 100 * y), float(x.max())))
    if not series:
        return None
    heights = [y for _, points, _, _ in series for _, y in points]
    low, high = round_range([*heights, 0.0])
    far = max(points[-1][0] for _, points, _, _ in series)
    drawing = Drawing(WIDTH, _HEIGHT, f"Accuracy change against {_AXES[scale]}")
    x_scale = Scale(0, far * 1.05 or 1.0, _LEFT, WIDTH - _RIGHT)
    y_scale = Scale(low, high, _HEIGHT - _BOTTOM, _TOP)
    frame(drawing, x_scale, y_scale, _AXES[scale], "points")
    for row, points, line, _ in series:
        look = looks[row.label]
        with drawing.group(row.label, data_method=row.method, class_=f"series s{look.slot}"):
            if line is not None:
                ends = [
                    (p, line.intercept + line.slope.value * p)
                    for p in (points[0][0], points[-1][0])
                ]
                inside = [(x_scale(p), y_scale(min(max(v, low), high))) for p, v in ends]
                drawing.polyline(inside, look)
            for across, up in points:
                drawing.marker(x_scale(across), y_scale(up), look)
    return drawing.markup()


def _mean_misalignment(shifts: Sequence[Shift]) -> float | None:
    return float(np.mean([shift.misalignment for shift in shifts])) if shifts else None
