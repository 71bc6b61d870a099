"""A picture of representation shift: what a batch that moves the images does to their accuracy."""

import os
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from deepccg.records import Shift, ShiftMeasure, ShiftScale, fit_line, shift_points
from deepccg.report.formatting import slope_text
from deepccg.report.palette import LIGHT, Look
from deepccg.report.shift_chart import binned
from deepccg.report.style import INK, LINE, footnote, heading, new_figure, plain_axes, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 20
_LEGEND = 54  # letters that fit below a panel
_PANELS: tuple[tuple[str, ShiftScale, ShiftMeasure], ...] = (
    ("As in the paper", "distance", "accuracy_change"),
    ("Free of scale", "relative", "accuracy_change"),
    ("Misalignment", "relative", "misalignment"),
)
_ACROSS = {
    "distance": "mean distance that a batch moves an embedding",
    "relative": "the same, divided by the mean pairwise distance",
}
_UP = {
    "accuracy_change": "change in accuracy, points",
    "misalignment": "old minus new classifier, points",
}


def plot_shift(
    methods: Mapping[str, tuple[Sequence[Shift], Look]],
    path: str | os.PathLike[str],
    *,
    title: str,
) -> "Figure":
    """Draw binned scatters with each method's least-squares line and its slope.

    Args:
        methods: For each method its records, of all seeds, and its look.
        path: Where the PNG or PDF goes.
        title: The heading.
    """
    figure = new_figure(13, 4.6)
    for place, (name, scale, measure) in enumerate(_PANELS, start=1):
        axes = figure.add_subplot(1, len(_PANELS), place)
        plain_axes(axes)
        axes.grid(axis="y", color=LINE, linewidth=0.6)
        axes.axhline(0, color=INK, linewidth=0.8)
        for label, (shifts, look) in methods.items():
            _draw(axes, label, shifts, look, scale, measure)
        axes.set_xlabel(_ACROSS[scale])
        axes.set_ylabel(_UP[measure])
        heading(axes, name, bold=False)
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            frameon=False,
            fontsize=8,
            labelcolor=INK,
            title="slope [95 % interval]",
            title_fontsize=8,
        )
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, fontweight="bold", color=INK)
    footnote(
        figure,
        f"First task's test images, every batch after the first task. Points: means of {BINS} "
        "groups of batches, by shift; lines: least squares over all batches; intervals take "
        "batches as independent.",
    )
    save(figure, path)
    return figure


def _draw(
    axes: "Axes",
    label: str,
    shifts: Sequence[Shift],
    look: Look,
    scale: ShiftScale,
    measure: ShiftMeasure,
) -> None:
    x, y = shift_points(shifts, scale, measure)
    if not len(x):
        return
    colour, points = LIGHT[look.slot], binned(x, 100 * y, BINS)
    line = fit_line(x, 100 * y)
    slope = "" if line is None else slope_text(line.slope).replace(" ", "\N{NO-BREAK SPACE}")
    named = textwrap.fill(f"{label}: {slope}" if slope else label, _LEGEND)
    marker = look.plot_marker
    across, up = zip(*points, strict=True)
    axes.plot(across, up, marker, color=colour, markersize=4.5, alpha=0.85, label=named)
    if line is not None:
        ends = (across[0], across[-1])
        heights = [line.intercept + line.slope.value * end for end in ends]
        dashes = [float(dash) for dash in look.dashes.split()]
        axes.plot(ends, heights, color=colour, linewidth=1.5, dashes=dashes or (None, None))
