"""Accuracy on the classes seen so far, along the stream."""

import math
from collections.abc import Mapping, Sequence

from deepccg.records import Estimate, Evaluation, Mode, average_accuracy, estimate
from deepccg.report.figures import description as fig
from deepccg.report.figures.style import SeriesStyle, series_styles
from deepccg.report.formatting import percent

_NOT_FOLLOWED = "Scored at the end only: no line over time. Use --eval-every task to see one."
_NEEDS_TASK = "No method here predicts without a task."
_CAPTION = "On the classes seen so far."
_SEEDS = "Lines: mean over seeds. Bands: one standard error."
_MOST_POINTS = 200  # of a line
_MOST_MARKERS = 30  # of a line

Runs = Mapping[str, Sequence[Sequence[Evaluation]]]  # by label, for each seed
Curve = list[tuple[int, Estimate]]


def accuracy_curves(
    runs: Runs,
    styles: Mapping[str, SeriesStyle] | None = None,
    modes: Sequence[Mode] = ("task", "class"),
) -> fig.Figure:
    """Describe accuracy over time, mean and standard error over seeds, a panel for each mode."""
    styles = styles or series_styles((label, label) for label in runs)
    panels = [_panel(runs, mode, styles) for mode in modes]
    shown = tuple(panel for panel in panels if panel.series)
    if not shown:
        return fig.Figure(tuple(panels[:1]), _NOT_FOLLOWED)
    caption = [_CAPTION]
    if any(len(own) > 1 for own in runs.values()):
        caption.append(_SEEDS)
    if len(shown) < len(panels):
        caption.append(_NEEDS_TASK)
    return fig.Figure(shown, " ".join(caption), columns=len(shown))


def accuracy_over_time(runs: Sequence[Sequence[Evaluation]], mode: Mode) -> dict[int, Estimate]:
    """Return accuracy over seeds by examples seen, where all runs were evaluated."""
    curves = [
        {e.examples: value for e in run if (value := average_accuracy([e], mode)) is not None}
        for run in runs
    ]
    common = set.intersection(*map(set, curves)) if curves else set()
    return {seen: estimate([curve[seen] for curve in curves]) for seen in sorted(common)}


def _panel(runs: Runs, mode: Mode, styles: Mapping[str, SeriesStyle]) -> fig.Panel:
    found = {label: accuracy_over_time(seeds, mode) for label, seeds in runs.items()}
    curves = {label: _thinned(list(at.items())) for label, at in found.items() if len(at) > 1}
    series = tuple(_series(label, curve, styles[label]) for label, curve in curves.items())
    edges = [edge for each in series for pair in each.band for edge in pair]
    end = max((curve[-1][0] for curve in curves.values()), default=1)
    return fig.Panel(
        title=f"{mode.capitalize()}-incremental accuracy over time",
        x=fig.axis_between("examples seen", 0, end),
        y=fig.rounded_axis("accuracy, %", edges or [0, 100], limits=(0, 100)),
        series=series,
        alt=", ".join(f"{label} ends at {percent(c[-1][1])}" for label, c in curves.items()),
        names="line ends",
    )


def _series(label: str, curve: Curve, style: SeriesStyle) -> fig.Series:
    points = [
        fig.Point(seen, 100 * at.mean, tooltip=f"{label} after {seen:,} examples: {percent(at)} %")
        for seen, at in curve
    ]
    return fig.Series(
        label,
        style,
        line=tuple((point.x, point.y) for point in points),
        band=tuple(fig.error_bar(at) for _, at in curve),
        points=tuple(points) if len(points) <= _MOST_MARKERS else (),
    )


def _thinned(curve: Curve) -> Curve:
    """Leave out points of a long line, never the last."""
    return curve[:: -math.ceil(len(curve) / _MOST_POINTS)][::-1]
