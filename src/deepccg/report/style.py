"""The look of all pictures: one palette that colour-blind readers can tell apart, little ink."""

import io
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deepccg.records import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008); black and yellow left out, they shout and whisper on white
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
INK = "#22272E"
QUIET = "#6E7781"
LINE = "#D0D7DE"

_DPI = 200  # twice the screen's, sharp at README width


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure, in inches, that draws without a display and without global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: "Figure", path: str | os.PathLike[str]) -> None:
    """Write the figure as PNG or PDF, all or nothing, the same bytes for the same picture."""
    content = io.BytesIO()
    if Path(path).suffix == ".pdf":
        about = {"Creator": None, "Producer": None, "CreationDate": None}
        figure.savefig(content, format="pdf", metadata=about)
    else:
        figure.savefig(content, format="png", metadata={"Software": None})
    write_atomically(path, content.getvalue())


def plain_axes(axes: "Axes") -> None:
    """Leave only what carries meaning: no box, no tick marks, quiet labels."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(length=0, labelsize=9, labelcolor=QUIET)
    axes.set_axisbelow(True)
    axes.xaxis.label.set(color=QUIET, size=9)
    axes.yaxis.label.set(color=QUIET, size=9)


def heading(axes: "Axes", text: str, *, bold: bool = True) -> None:
    """A heading at the left edge of the plot."""
    weight = "bold" if bold else "normal"
    axes.set_title(text, loc="left", fontsize=11, fontweight=weight, color=INK, pad=10)


def footnote(figure: "Figure", text: str) -> None:
    """What a reader must know to read the picture, below it."""
    figure.supxlabel(text, x=0.01, ha="left", fontsize=8, color=QUIET)


def thousands(value: float, _: object = None) -> str:
    """A tick label.

    >>> thousands(12000.0)
    '12,000'
    """
    return f"{value:,.0f}"


def spread(heights: Sequence[float], gap: float, lowest: float = -math.inf) -> list[float]:
    """Move increasing heights as little as possible, so that neighbours are ``gap`` apart.

    With their due distances taken off, heights must only not decrease: least-squares isotonic
    regression, by pooling neighbours that are out of order. None goes below ``lowest``.

    >>> spread([1.0, 1.0, 9.0], gap=2.0)
    [0.0, 2.0, 9.0]
    """
    pools: list[tuple[float, int]] = []  # mean, size
    for place, height in enumerate(heights):
        mean, size = height - place * gap, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    free = [max(mean, lowest) for mean, size in pools for _ in range(size)]
    return [mean + place * gap for place, mean in enumerate(free)]
