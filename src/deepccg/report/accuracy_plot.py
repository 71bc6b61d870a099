"""A picture of accuracy along the stream, in both scenarios."""

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from deepccg.records import Estimate, Evaluation, Mode, average_accuracy, estimate
from deepccg.report.formatting import in_percent
from deepccg.report.palette import LIGHT, Look
from deepccg.report.style import (
    INK,
    LINE,
    PALETTE,
    QUIET,
    footnote,
    heading,
    new_figure,
    plain_axes,
    save,
    spread,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHES = ("-", "--", ":", "-.")  # for more methods than colours
_MARKED = 30  # evaluations up to which each is marked
_LABEL_GAP = 0.07  # between the names of two lines, as a part of the height


def plot_accuracy_over_time(
    runs: Mapping[str, Sequence[Sequence[Evaluation]]],
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    looks: Mapping[str, Look] | None = None,
) -> "Figure":
    """Draw each method's accuracy on what it has met, along the stream, in both scenarios.

    A line is the mean over seeds, its band one standard error to each side, at the moments when
    all of the method's runs were evaluated.

    Args:
        runs: For each method the evaluations of its runs, one sequence for each seed.
        path: Where the PNG goes.
        title: A heading over both panels.
        looks: The colour and dashes of each method; default by their order.
    """
    figure = new_figure(9, 3.8)
    task_axes, class_axes = figure.subplots(1, 2, sharex=True)
    _draw_over_time(task_axes, runs, "task", looks or {})
    heading(task_axes, "Task-incremental", bold=False)
    _draw_over_time(class_axes, runs, "class", looks or {})
    heading(class_axes, "Class-incremental", bold=False)
    task_axes.set_ylabel("accuracy on what was met so far, %")
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    footnote(figure, "Lines: mean over seeds. Bands: one standard error to each side.")
    save(figure, path)
    return figure


def accuracy_over_time(runs: Sequence[Sequence[Evaluation]], mode: Mode) -> dict[int, Estimate]:
    """Accuracy over seeds by examples seen, at the moments common to all runs."""
    curves = [
        {e.examples: value for e in run if (value := average_accuracy([e], mode)) is not None}
        for run in runs
    ]
    common = set.intersection(*map(set, curves)) if curves else set()
    return {seen: estimate([curve[seen] for curve in curves]) for seen in sorted(common)}


def _draw_over_time(
    axes: "Axes",
    runs: Mapping[str, Sequence[Sequence[Evaluation]]],
    mode: Mode,
    looks: Mapping[str, Look],
) -> None:
    plain_axes(axes)
    axes.grid(axis="y", color=LINE, linewidth=0.5)
    axes.set_xlabel("examples seen")
    axes.xaxis.set_major_formatter(thousands)
    axes.locator_params(axis="y", nbins=9, steps=[1, 2, 5, 10])
    for place, (label, seeds) in enumerate(runs.items()):
        curve = accuracy_over_time(seeds, mode)
        if not curve:
            continue
        seen = list(curve)
        mean = np.array([100 * at.mean for at in curve.values()])
        error = np.array([100 * (at.standard_error or 0) for at in curve.values()])
        look = looks.get(label)
        colour = LIGHT[look.slot] if look else PALETTE[place % len(PALETTE)]
        turn = look.variant if look else place // len(PALETTE)
        dashes = _DASHES[turn % len(_DASHES)]
        axes.fill_between(seen, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
        marker = "o" if len(seen) <= _MARKED else ""
        (line,) = axes.plot(seen, mean, dashes, color=colour, label=label, clip_on=False)
        line.set(marker=marker, markersize=3.5)
    if axes.lines:
        axes.set_xlim(0, axes.dataLim.x1)
        _label_ends(axes)
    else:
        axes.set_yticks([])
        nothing = "no method here predicts without a task"
        axes.text(0.5, 0.5, nothing, transform=axes.transAxes, ha="center", color=QUIET, size=9)


def _label_ends(axes: "Axes") -> None:
    """Name each line where it ends, moved apart where they meet: no legend to look up."""
    low, high = axes.get_ylim()
    lines = sorted(axes.lines, key=lambda line: float(np.asarray(line.get_ydata())[-1]))
    ends = [float(np.asarray(line.get_ydata())[-1]) for line in lines]
    heights = spread(ends, gap=(high - low) * _LABEL_GAP, lowest=low)
    for line, end, height in zip(lines, ends, heights, strict=True):
        axes.annotate(
            f"{line.get_label()}  {in_percent(end / 100)}",
            (1.02, height),
            xycoords=axes.get_yaxis_transform(),
            color=str(line.get_color()),
            fontsize=9,
            va="center",
        )
