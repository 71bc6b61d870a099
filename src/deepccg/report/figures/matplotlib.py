"""Figures as matplotlib draws them, for PNG and PDF."""

import importlib.util
import io
import itertools
import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepccg.records import RecordError, write_atomically
from deepccg.report.figures.description import Figure, Panel, Point, Series
from deepccg.report.figures.style import INK, LINE, QUIET, SeriesStyle
from deepccg.report.formatting import in_percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_METADATA = {"pdf": ("Creator", "Producer", "CreationDate"), "png": ("Software",)}  # left out
_DPI = 200  # twice the screen's, sharp at README width
_MARKERS = {"circle": "o", "square": "s", "triangle": "^", "diamond": "D"}
_Place = tuple[float, int, tuple[float, float, float, float], tuple[float, float], Point]
_RULES = {"grid": LINE, "boundary": QUIET, "zero": INK, "now": INK}
_LABEL_GAP = 0.07  # between the names of two lines, relative to the height
_NAME_LETTER, _NAME_HEIGHT = 4.8, 9.0  # typographic points, of the name of a series
_LEGEND_LETTERS = 54  # that fit below a panel
_CAPTION_LETTERS = 17  # that fit in an inch
_PIXELS = 75  # of the page to an inch
_AROUND = 85  # pixels for what stands above and below a plot area
_LEAST_WIDTH, _LINE = 4, 0.16  # inches: of a figure, of a line of text


def require_matplotlib() -> None:
    """Refuse to draw without it, before anything is written."""
    if importlib.util.find_spec("matplotlib") is None:
        raise RecordError("PNG and PDF figures need matplotlib: pip install 'deepccg[plots]'")


def save(figure: "Figure | Drawing", *paths: str | os.PathLike[str], title: str = "") -> list[Path]:
    """Write a figure as PNG or PDF, by the suffix of each path; returns the paths.

    Each file is whole or not there, and the same figure gives the same bytes.
    """
    require_matplotlib()
    drawing = draw(figure, title) if isinstance(figure, Figure) else figure
    for path in map(Path, paths):
        content, kind = io.BytesIO(), "pdf" if path.suffix == ".pdf" else "png"
        drawing.savefig(content, format=kind, metadata=dict.fromkeys(_METADATA[kind]))
        write_atomically(path, content.getvalue())
    return [Path(path) for path in paths]


def draw(figure: Figure, title: str = "") -> "Drawing":
    """Draw all panels of a figure, with plot areas about as large as on the page."""
    from matplotlib.text import Text

    rows = -(-len(figure.panels) // figure.columns)
    panel = figure.panels[0]
    width = max(figure.columns * panel.width / _PIXELS, _LEAST_WIDTH)
    caption = textwrap.fill(figure.caption, int(_CAPTION_LETTERS * width))
    lines = caption.count("\n") + (len(panel.series) + 2 if panel.names == "legend" else 1)
    height = rows * (panel.height + _AROUND) / _PIXELS + _LINE * lines
    drawing = new_figure(width, height)
    grid = drawing.subplots(rows, figure.columns, squeeze=False).ravel().tolist()
    for axes in grid[len(figure.panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid, figure.panels, strict=False):
        _draw_panel(axes, panel, figure.legend_title)
    if figure.colour_label:
        _draw_colour_scale(drawing, grid, figure.colour_label)
    drawing.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold", color=INK)
    footnote(drawing, caption)
    for axes, panel in zip(grid, figure.panels, strict=False):
        if panel.names == "points":
            _name_points(drawing, axes, panel)
    for text in drawing.findobj(Text):
        text.set_parse_math(False)  # names of classes and methods may hold dollar signs
    return drawing


def new_figure(width: float, height: float) -> "Drawing":
    """Return an empty figure, in inches, that needs no display and no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(width, height), dpi=_DPI, facecolor="white", layout="constrained")
    FigureCanvasAgg(drawing)
    return drawing


def plain_axes(axes: "Axes") -> None:
    """Leave only what carries meaning: no box, no tick marks, quiet labels."""
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(LINE)
    axes.tick_params(length=0, labelsize=9, labelcolor=QUIET)
    axes.set_axisbelow(True)
    axes.xaxis.label.set(color=QUIET, size=9)
    axes.yaxis.label.set(color=QUIET, size=9)


def heading(axes: "Axes", text: str) -> None:
    """Write a heading at the left edge of the plot."""
    axes.set_title(text, loc="left", fontsize=10, color=INK, pad=8)


def footnote(drawing: "Drawing", text: str) -> None:
    """Write below the figure what a reader must know to read it."""
    drawing.supxlabel(text, x=0.01, ha="left", fontsize=8, color=QUIET)


def spread(heights: Sequence[float], gap: float, lowest: float = -math.inf) -> list[float]:
    """Move increasing heights as little as possible, so that neighbours are ``gap`` apart.

    With their due distances taken off, heights must only not decrease: isotonic regression.

    >>> spread([1.0, 1.0, 9.0], gap=2.0)
    [0.0, 2.0, 9.0]
    """
    from sklearn.isotonic import isotonic_regression

    due = gap * np.arange(len(heights))
    moved: list[float] = (isotonic_regression(np.array(heights) - due, y_min=lowest) + due).tolist()
    return moved


def _draw_panel(axes: "Axes", panel: Panel, legend_title: str) -> None:
    plain_axes(axes)
    _draw_axes(axes, panel)
    if panel.title:
        heading(axes, panel.title)
    for rule in panel.rules:
        line = axes.axvline if rule.axis == "x" else axes.axhline
        line(rule.value, color=_RULES[rule.kind], linewidth=0.8, zorder=0.9)
    for series in panel.series:
        _draw_series(axes, series)
    for text in panel.texts:
        colour = "white" if text.on_dark else "black"
        axes.text(text.x, text.y, text.text, ha="center", va="center", color=colour, fontsize=7)
    if panel.image is not None:
        extent = (panel.x.low, panel.x.high, panel.y.low, panel.y.high)
        axes.imshow(panel.image, extent=extent, interpolation="nearest", aspect="equal")
        axes.spines[:].set_visible(False)
        axes.set_anchor("NW")
    # Last: images and error bars move the limits.
    axes.set(xlim=(panel.x.low, panel.x.high), ylim=(panel.y.low, panel.y.high))
    if panel.names == "line ends":
        _name_line_ends(axes, panel)
    elif panel.names == "legend" and panel.series:
        axes.legend(
            loc="upper center",
            bbox_to_anchor=(0.5, -0.16),
            frameon=False,
            fontsize=8,
            labelcolor=INK,
            title=legend_title or None,
            title_fontsize=8,
        )


def _draw_axes(axes: "Axes", panel: Panel) -> None:
    x, y = panel.x, panel.y
    axes.set(xscale="log" if x.log else "linear", yscale="log" if y.log else "linear")
    axes.minorticks_off()
    axes.set(xlabel=x.label, ylabel=y.label)
    for axis, described in ((axes.xaxis, x), (axes.yaxis, y)):
        axis.set_ticks([value for value, _ in described.ticks], [t for _, t in described.ticks])
        if described.grid:
            axis.grid(visible=True, color=LINE, linewidth=0.6)
    if y.categories:
        axes.tick_params(axis="y", labelcolor=INK, pad=8)
    if panel.top:
        top = axes.secondary_xaxis("top")
        top.set_xticks([v for v, _ in panel.top.ticks], [text for _, text in panel.top.ticks])
        top.tick_params(length=0, labelsize=9, labelcolor=QUIET)
        top.spines["top"].set_visible(False)
        top.set_xlabel(panel.top.label, color=QUIET, size=9)


def _draw_series(axes: "Axes", series: Series) -> None:
    style = series.style or SeriesStyle(0)
    colour = series.colour or style.colour
    if series.line:
        x, y = zip(*series.line, strict=True)
        axes.plot(x, y, color=colour, linewidth=1.5, dashes=style.dashes or (None, None))
    if series.band:
        low, high = zip(*series.band, strict=True)
        axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    for point in series.points:
        _draw_error_bar(axes, point, colour)
    for face in (colour, "white"):
        places = [(p.x, p.y) for p in series.points if p.hollow == (face == "white")]
        if places:
            axes.plot(
                *zip(*places, strict=True),
                _MARKERS[style.marker],
                color=colour,
                markerfacecolor=face,
                markersize=3.5 if series.band else 5.5,
                label=textwrap.fill(series.legend or series.label, _LEGEND_LETTERS),
                clip_on=False,
            )
    for bar in series.bars:
        width, height = bar.right - bar.left, bar.top - bar.bottom
        axes.bar(bar.left, height, width, bar.bottom, align="edge", color=colour)


def _draw_error_bar(axes: "Axes", point: Point, colour: str) -> None:
    if point.x_error:
        axes.hlines(point.y, *point.x_error, color=colour, linewidth=1.5)
    if point.y_error:
        axes.vlines(point.x, *point.y_error, color=colour, linewidth=1.5)
    if point.text:
        end = max((point.x, *(point.x_error or ())))
        _annotate(axes, point.text, (end, point.y), (7, -3), colour)


def _annotate(
    axes: "Axes", text: str, place: tuple[float, float], offset: tuple[float, float], colour: str
) -> None:
    axes.annotate(text, place, xytext=offset, textcoords="offset points", fontsize=8, color=colour)


def _name_points(drawing: "Drawing", axes: "Axes", panel: Panel) -> None:
    """Name each series beside one of its points, where fewest other names and markers are."""
    drawing.draw_without_rendering()  # now things are where they will be
    unit = drawing.dpi / 72  # pixels of a typographic point
    places = {
        series.label: axes.transData.transform([(p.x, p.y) for p in series.points]) / unit
        for series in panel.series
    }
    edge = drawing.bbox.width / unit
    taken = [(x - 4, y - 4, x + 4, y + 4) for own in places.values() for x, y in own]
    for own in places.values():
        for (x, y), (to_x, to_y) in itertools.pairwise(own):  # a line, piece by piece
            along = np.linspace(0, 1, 2 + int(math.hypot(to_x - x, to_y - y) / 4))
            pieces = zip(x + along * (to_x - x), y + along * (to_y - y), strict=True)
            taken += [(a - 1, b - 1, a + 1, b + 1) for a, b in pieces]
    for series in panel.series:
        width, height = _NAME_LETTER * len(series.label), _NAME_HEIGHT
        options: list[_Place] = []
        for (x, y), point in zip(places[series.label], series.points, strict=True):
            for left, bottom in _beside(width, height):
                box = (x + left, y + bottom, x + left + width, y + bottom + height)
                beyond = max(box[2] - edge, 0) + max(-box[0], 0)
                covered = sum(_overlap(box, other) for other in taken) + height * beyond
                options.append((covered, len(options), box, (left, bottom), point))
        _, _, box, offset, point = min(options, key=lambda option: option[:2])
        taken.append(box)
        colour = series.style.colour if series.style else INK
        _annotate(axes, series.label, (point.x, point.y), offset, colour)


def _beside(width: float, height: float) -> list[tuple[float, float]]:
    """Offsets of a name's lower left corner from its point, the best first."""
    middle, above, below, right, left = -height / 2, 4.0, -4 - height, 6.0, -6 - width
    centred = -width / 2
    return [
        (right, middle), (left, middle), (right, above), (right, below), (left, above),
        (left, below), (centred, above + 2), (centred, below - 2),
        (right, above + 4), (right, below - 4),
    ]  # fmt: skip


def _overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Area that two boxes (left, bottom, right, top) share."""
    sides = (min(one[k + 2], other[k + 2]) - max(one[k], other[k]) for k in (0, 1))
    return math.prod(max(side, 0) for side in sides)


def _name_line_ends(axes: "Axes", panel: Panel) -> None:
    """Name each line where it ends, moved apart where they meet: no legend to look up."""
    ordered = sorted(panel.series, key=lambda series: series.line[-1][1])
    gap = (panel.y.high - panel.y.low) * _LABEL_GAP
    heights = spread([series.line[-1][1] for series in ordered], gap, panel.y.low)
    for series, height in zip(ordered, heights, strict=True):
        axes.annotate(
            f"{series.label}  {in_percent(series.line[-1][1] / 100)}",
            (1.02, height),
            xycoords=axes.get_yaxis_transform(),
            color=series.style.colour if series.style else INK,
            fontsize=9,
            va="center",
        )


def _draw_colour_scale(drawing: "Drawing", axes: "list[Axes]", label: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    colours = ScalarMappable(Normalize(0, 100), "viridis")
    bar = drawing.colorbar(colours, ax=axes, shrink=0.8, pad=0.02)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=QUIET)
    bar.set_label(label, color=QUIET, size=9)
