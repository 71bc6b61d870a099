"""Representation shift against what it does to the first task's accuracy."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from deepccg.records import Shift, ShiftMeasure, ShiftScale, fit_line, shift_points
from deepccg.report.figures import description as fig
from deepccg.report.figures.style import SeriesStyle
from deepccg.report.formatting import slope_text

BINS = 20
_PANELS: tuple[tuple[str, ShiftScale, ShiftMeasure], ...] = (
    ("Shift and accuracy", "distance", "accuracy_change"),
    ("Shift and accuracy, free of scale", "relative", "accuracy_change"),
    ("Shift and misalignment, free of scale", "relative", "misalignment"),
)
_X_LABELS: dict[ShiftScale, str] = {
    "distance": "mean distance that a batch moves an embedding",
    "relative": "distance moved / mean pairwise distance",
}
_Y_LABELS: dict[ShiftMeasure, str] = {
    "accuracy_change": "change in accuracy, points",
    "misalignment": "old minus new classifier, points",
}
_CAPTION = (
    f"First task's test images, every batch after the first task. Points: means of {BINS} groups "
    "of batches, by shift. Lines: least squares over all batches."
)

Shifts = Mapping[str, Sequence[Shift]]  # by label, of all seeds
Floats = npt.NDArray[np.float64]


def shift_scatter(shifts: Shifts, styles: Mapping[str, SeriesStyle]) -> fig.Figure:
    """Describe binned scatters with the least-squares line and slope of each label."""
    panels = tuple(_panel(shifts, styles, *panel) for panel in _PANELS)
    legend_title = "slope [95 % interval, batches taken as independent]"
    return fig.Figure(panels, _CAPTION, columns=len(panels), legend_title=legend_title)


def binned(x: Floats, y: Floats, bins: int = BINS) -> list[tuple[float, float]]:
    """Return means of groups of about equal size, by increasing x.

    >>> binned(np.array([3.0, 1.0, 2.0, 4.0]), np.array([30.0, 10.0, 20.0, 40.0]), bins=2)
    [(1.5, 15.0), (3.5, 35.0)]
    """
    order = np.argsort(x, kind="stable")
    parts = np.array_split(order, min(bins, len(order)))
    return [(float(x[part].mean()), float(y[part].mean())) for part in parts if len(part)]


def _panel(
    shifts: Shifts,
    styles: Mapping[str, SeriesStyle],
    title: str,
    scale: ShiftScale,
    measure: ShiftMeasure,
) -> fig.Panel:
    found = {label: shift_points(own, scale, measure) for label, own in shifts.items()}
    series = tuple(_series(k, x, 100 * y, styles[k]) for k, (x, y) in found.items() if len(x))
    places = [(point.x, point.y) for each in series for point in each.points]
    places += [end for each in series for end in each.line]
    far = max((x for x, _ in places), default=0)
    return fig.Panel(
        title,
        fig.axis_between(_X_LABELS[scale], 0, 1.05 * far or 1.0),
        fig.rounded_axis(_Y_LABELS[measure], [0.0, *(y for _, y in places)]),
        series,
        alt="; ".join(each.tooltip for each in series),
        rules=(fig.Rule(0, "y", "zero"),),
        names="legend",
    )


def _series(label: str, x: Floats, y: Floats, style: SeriesStyle) -> fig.Series:
    points = tuple(fig.Point(*place) for place in binned(x, y))
    fitted = fit_line(x, y)
    if fitted is None:
        return fig.Series(label, style, points=points, tooltip=label)
    ends, slope = (points[0].x, points[-1].x), slope_text(fitted.slope)
    line = tuple((end, fitted.intercept + fitted.slope.value * end) for end in ends)
    legend = f"{label}: " + slope.replace(" ", "\N{NO-BREAK SPACE}")
    tooltip = f"{label}, slope {slope}"
    return fig.Series(label, style, line=line, points=points, tooltip=tooltip, legend=legend)
