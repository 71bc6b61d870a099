"""A picture of our numbers beside the paper's."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deepccg.records import Estimate
from deepccg.report.formatting import in_percent
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
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plot_comparison(
    methods: Mapping[str, tuple[Estimate | None, tuple[float, float | None] | None]],
    path: str | os.PathLike[str],
    *,
    title: str,
    xlabel: str = "accuracy, %",
) -> "Figure":
    """Draw our number beside the paper's for each method, with standard errors.

    Args:
        methods: For each method ours and the paper's (mean, standard error), as fractions;
            ``None`` for a number there is not.
        path: Where the PNG goes.
        title: The heading.
        xlabel: What the numbers are.
    """
    figure = new_figure(7, 1.3 + 0.5 * len(methods))
    axes = figure.add_subplot()
    plain_axes(axes)
    axes.grid(axis="x", color=LINE, linewidth=0.6)
    for row, (ours, paper) in enumerate(methods.values()):
        if ours is not None:
            _draw_number(axes, row - 0.16, ours.mean, ours.standard_error, PALETTE[0], filled=True)
        if paper is not None:
            _draw_number(axes, row + 0.16, *paper, QUIET, filled=False)
    axes.set_yticks(range(len(methods)), list(methods), color=INK, size=10)
    axes.set_ylim(len(methods) - 0.5, -0.5)  # the first method on top
    axes.margins(x=0.12)
    axes.set_xlabel(xlabel)
    heading(axes, title)
    footnote(figure, "Bars: one standard error to each side.")
    if any(paper is not None for _, paper in methods.values()):
        _legend(axes)
    save(figure, path)
    return figure


def _legend(axes: "Axes") -> None:
    """Which dot is whose, below the plot: above it a long title would be in the way."""
    ours = axes.plot([], [], "o", color=PALETTE[0], label="this library")
    paper = axes.plot([], [], "o", color=QUIET, markerfacecolor="white", label="paper")
    axes.legend(
        handles=[*ours, *paper],
        loc="upper right",
        bbox_to_anchor=(1, 0),
        borderaxespad=2.4,
        ncols=2,
        columnspacing=1,
        handletextpad=0.1,
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )


def _draw_number(
    axes: "Axes", y: float, mean: float, error: float | None, colour: str, *, filled: bool
) -> None:
    half = 100 * (error or 0)
    axes.errorbar(
        100 * mean,
        y,
        xerr=half or None,
        fmt="o",
        color=colour,
        markerfacecolor=colour if filled else "white",
        markersize=6,
        elinewidth=1.6,
    )
    axes.annotate(
        in_percent(mean),
        (100 * mean + half, y),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        fontsize=8,
        color=colour,
    )
