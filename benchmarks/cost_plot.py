"""Cost of a step against the number of classes and of stored examples."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from deepccg.report.figures import SeriesStyle, save
from deepccg.report.figures import description as fig

STYLES = {  # by mode
    "ER": SeriesStyle(6, 1),
    "DeepCCG, exact": SeriesStyle(0),
    "DeepCCG, sampled": SeriesStyle(2, 3),
    "DeepCCG, sampled, through": SeriesStyle(3),
    "DeepCCG, leave one out": SeriesStyle(4, 2),
}
PANELS = (
    ("classes", "classes, 10 stored of each", ("per class", 10)),
    ("per class", "stored of each of 100 classes", ("classes", 100)),
)
CAPTION = (
    "One torch thread; batch 10, replay 10 (leave one out: 40), tasks of 5; bars: quartiles; "
    "through, leave one out: with gradients through the class means."
)
MARGIN = 1.2  # factor of room at the ends of an axis


def plot_cost(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Two panels, logarithmic, medians with quartiles."""
    times = [value for row in rows for value in row["cpu ms"]]
    y = fig.axis_between(
        "CPU milliseconds a step", min(times) / MARGIN, max(times) * MARGIN, log=True
    )
    panels = []
    for key, label, (fixed, value) in PANELS:
        shown = [row for row in rows if row[fixed] == value]
        sizes = sorted({row[key] for row in shown})
        ticks = tuple((size, f"{size:,}") for size in sizes)
        x = fig.Axis(label, sizes[0] / MARGIN, sizes[-1] * MARGIN, ticks, log=True)
        panels.append(fig.Panel("", x, replace(y, grid=True), _series(shown, key), names="legend"))
    save(fig.Figure(tuple(panels), CAPTION, columns=2), path, title="What a step costs")


def _series(rows: Sequence[Mapping[str, Any]], key: str) -> tuple[fig.Series, ...]:
    found = []
    for mode, style in STYLES.items():
        own = sorted((row[key], *row["cpu ms"]) for row in rows if row["mode"] == mode)
        points = tuple(fig.Point(x, middle, y_error=(low, high)) for x, middle, low, high in own)
        if points:
            line = tuple((point.x, point.y) for point in points)
            found.append(fig.Series(mode, style, line=line, points=points))
    return tuple(found)
