"""Figures: each described once, drawn as SVG for the page and by matplotlib for PNG and PDF."""

from deepccg.report.figures.accuracy_curves import accuracy_curves, accuracy_over_time
from deepccg.report.figures.catalogue import comparison_figures
from deepccg.report.figures.comparison_dots import comparison_dots
from deepccg.report.figures.heat_map import colour_scale
from deepccg.report.figures.matplotlib import save
from deepccg.report.figures.shift_scatter import shift_scatter
from deepccg.report.figures.stream_bars import stream_from_counts
from deepccg.report.figures.style import DARK, LIGHT, SeriesStyle, series_styles
from deepccg.report.figures.svg import PageFigure, page_figures, svg, swatch

__all__ = [
    "DARK",
    "LIGHT",
    "PageFigure",
    "SeriesStyle",
    "accuracy_curves",
    "accuracy_over_time",
    "colour_scale",
    "comparison_dots",
    "comparison_figures",
    "page_figures",
    "save",
    "series_styles",
    "shift_scatter",
    "stream_from_counts",
    "svg",
    "swatch",
]
