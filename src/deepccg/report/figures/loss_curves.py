"""The training loss along the stream."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from deepccg.records import Training
from deepccg.report.figures import description as fig
from deepccg.report.figures.style import SeriesStyle

_MOST_POINTS = 60  # of a line: a point is the mean of the records around it
_CAPTION = (
    "Mean over seeds. Methods minimise different losses: compare how a line moves, not its height."
)
_WIDE = 20  # with losses that differ by more than this factor, the axis is logarithmic


def loss_curves(
    runs: Mapping[str, Sequence[Sequence[Training]]], styles: Mapping[str, SeriesStyle]
) -> fig.Figure | None:
    """Describe the recorded losses, by label for each seed; ``None`` where there is no line."""
    curves = {label: _mean(seeds) for label, seeds in runs.items()}
    series = tuple(
        fig.Series(label, styles[label], line=tuple(curve), tooltip=label)
        for label, curve in curves.items()
        if len(curve) > 1 and any(loss for _, loss in curve)  # a closed form has none
    )
    if not series:
        return None
    ends = ", ".join(f"{each.label} ends at {each.line[-1][1]:.3g}" for each in series)
    losses = [loss for each in series for _, loss in each.line]
    last = max(each.line[-1][0] for each in series)
    panel = fig.Panel(
        title="Training loss",
        x=fig.axis_between("batches", 0, last),
        y=_loss_axis(losses),
        series=series,
        alt=ends,
        names="line ends",
    )
    return fig.Figure((panel,), _CAPTION)


def _loss_axis(losses: Sequence[float]) -> fig.Axis:
    """Return an axis on which a sum over the batch does not flatten the means of all others."""
    low, high = min(losses), max(losses)
    if not 0 < _WIDE * low < high:
        return fig.rounded_axis("loss", losses)
    return replace(
        fig.axis_between("loss, logarithmic", low / 1.1, high * 1.1, log=True), grid=True
    )


def _mean(seeds: Sequence[Sequence[Training]]) -> list[fig.Pair]:
    """Average over the seeds where all have a record, and over neighbours on a long line."""
    by_step = [{record.step: float(record.loss) for record in own} for own in seeds]
    common = sorted(set.intersection(*map(set, by_step))) if by_step else []
    width = math.ceil(len(common) / _MOST_POINTS) or 1
    groups = [common[k : k + width] for k in range(0, len(common), width)]
    return [
        (float(np.mean(steps)), float(np.mean([own[step] for own in by_step for step in steps])))
        for steps in groups
    ]
