"""A picture of accuracy against what it cost."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deepccg.records import Estimate
from deepccg.report.palette import LIGHT, Look
from deepccg.report.style import INK, LINE, heading, new_figure, plain_axes, save
from deepccg.report.svg import log_ticks, tick

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def plot_cost(
    methods: Mapping[str, tuple[Estimate, Estimate, Look]],
    path: str | os.PathLike[str],
    *,
    title: str,
    xlabel: str,
) -> "Figure":
    """Draw accuracy against cost, both over seeds, the cost by its logarithm.

    Args:
        methods: For each method its cost, its accuracy as a fraction, and its look.
        path: Where the PNG goes.
        title: The heading.
        xlabel: What the cost is.
    """
    figure = new_figure(6.5, 4)
    axes = figure.add_subplot()
    plain_axes(axes)
    axes.grid(axis="y", color=LINE, linewidth=0.6)
    for label, (cost, accuracy, look) in methods.items():
        axes.errorbar(
            cost.mean,
            100 * accuracy.mean,
            yerr=100 * (accuracy.standard_error or 0) or None,
            fmt=look.plot_marker,
            color=LIGHT[look.slot],
            markersize=6,
            label=label,
        )
        axes.annotate(
            label,
            (cost.mean, 100 * accuracy.mean),
            xytext=(7, 4),
            textcoords="offset points",
            fontsize=8,
            color=INK,
        )
    axes.set_xscale("log")
    axes.margins(x=0.25)
    axes.minorticks_off()
    ticks = log_ticks(*axes.get_xlim())
    axes.set_xticks(ticks, [tick(value) for value in ticks])
    axes.set_xlabel(xlabel)
    axes.set_ylabel("accuracy, %")
    heading(axes, title)
    save(figure, path)
    return figure
