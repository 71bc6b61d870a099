"""A picture of task-by-time heat maps, one for each method."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from deepccg.report.style import INK, QUIET, heading, new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLUMNS = 4
_NUMBERED = 10  # tasks up to which the cells have numbers


def plot_heat_maps(
    methods: Mapping[str, npt.NDArray[np.float64]], path: str | os.PathLike[str], *, title: str
) -> "Figure":
    """Draw ``a[t, i]`` of each method: time to the right, tasks downwards.

    Args:
        methods: For each method its accuracies ``[T, T]`` as fractions, NaN where there is none.
        path: Where the PNG goes.
        title: A heading over all.
    """
    columns = min(_COLUMNS, len(methods))
    lines = -(-len(methods) // columns)
    figure = new_figure(2.4 * columns + 0.8, 2.5 * lines + 0.5)
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[len(methods) :]:
        axes.set_visible(False)
    for axes, (label, matrix) in zip(grid.flat, methods.items(), strict=False):
        drawn = axes.imshow(100 * matrix.T, vmin=0, vmax=100, cmap="viridis", aspect="equal")
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, labelsize=8, labelcolor=QUIET)
        axes.locator_params(integer=True, nbins=6)
        heading(axes, label, bold=False)
        if len(matrix) <= _NUMBERED:
            for (time, task), value in np.ndenumerate(matrix):
                if not np.isnan(value):
                    colour = "white" if value < 0.6 else "black"
                    axes.text(
                        time, task, f"{100 * value:.0f}", ha="center", va="center",
                        color=colour, fontsize=7,
                    )  # fmt: skip
    bar = figure.colorbar(drawn, ax=grid, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=QUIET)
    bar.set_label("accuracy, %", color=QUIET, size=9)
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    figure.supxlabel("after task", fontsize=9, color=QUIET)
    figure.supylabel("accuracy on task", fontsize=9, color=QUIET)
    save(figure, path)
    return figure
