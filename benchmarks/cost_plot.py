"""Cost of a step against the number of classes and of stored examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from deepccg.report.style import (
    LINE,
    PALETTE,
    QUIET,
    footnote,
    heading,
    new_figure,
    plain_axes,
    save,
    thousands,
)

SERIES = {  # colour and marker by mode
    "ER": (QUIET, "s"),
    "DeepCCG, exact": (PALETTE[0], "o"),
    "DeepCCG, grouped": (PALETTE[1], "^"),
    "DeepCCG, lazy": (PALETTE[2], "D"),
    "DeepCCG, lazy, through": (PALETTE[3], "v"),
}
PANELS = (
    ("classes", "classes, 10 stored of each", ("per class", 10)),
    ("per class", "stored of each of 100 classes", ("classes", 100)),
)


def plot_cost(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Two panels, logarithmic, medians with quartiles."""
    figure = new_figure(8.0, 3.6)
    axes = figure.subplots(1, 2, sharey=True)
    for axis, (key, label, (fixed, value)) in zip(axes, PANELS, strict=True):
        shown = [row for row in rows if row[fixed] == value]
        for mode, (colour, marker) in SERIES.items():
            points = sorted((row[key], *row["cpu ms"]) for row in shown if row["mode"] == mode)
            if not points:
                continue
            x, middle, low, high = zip(*points, strict=True)
            below = [m - v for m, v in zip(middle, low, strict=True)]
            above = [v - m for m, v in zip(middle, high, strict=True)]
            axis.errorbar(
                x, middle, yerr=[below, above], color=colour, marker=marker, label=mode, ms=5
            )
        axis.set_xscale("log")
        axis.set_yscale("log")
        axis.set_xticks(sorted({row[key] for row in shown}))
        axis.xaxis.set_major_formatter(thousands)
        axis.yaxis.set_major_formatter(thousands)
        axis.minorticks_off()
        axis.set_xlabel(label)
        axis.grid(axis="y", color=LINE, linewidth=0.6)
        plain_axes(axis)
    axes[0].set_ylabel("CPU milliseconds a step")
    axes[0].legend(frameon=False, fontsize=8)
    heading(axes[0], "What a step costs")
    footnote(
        figure,
        "One torch thread; batch 10, replay 10, tasks of 5 classes; bars: quartiles; through: with "
        "gradients through the class means.",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    save(figure, path)
