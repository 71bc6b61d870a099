"""Figures: each described once, drawn as SVG for the page and by matplotlib for PNG and PDF."""

from deepccg.report.figures.accuracy_curves import accuracy_curves, accuracy_over_time
from deepccg.report.figures.comparison_dots import comparison_dots, cost_scatter
from deepccg.report.figures.description import Figure
from deepccg.report.figures.heat_map import colour_scale, confusion_maps, heat_maps
from deepccg.report.figures.loss_curves import loss_curves
from deepccg.report.figures.matplotlib import require_matplotlib, save
from deepccg.report.figures.memory_images import Stored, memory_images
from deepccg.report.figures.shift_scatter import shift_scatter
from deepccg.report.figures.stream_bars import stream_from_counts, stream_from_evaluations
from deepccg.report.figures.style import DARK, LIGHT, SeriesStyle, series_styles
from deepccg.report.figures.svg import svg, swatch

__all__ = [
    "DARK",
    "LIGHT",
    "Figure",
    "SeriesStyle",
    "Stored",
    "accuracy_curves",
    "accuracy_over_time",
    "colour_scale",
    "comparison_dots",
    "confusion_maps",
    "cost_scatter",
    "heat_maps",
    "loss_curves",
    "memory_images",
    "require_matplotlib",
    "save",
    "series_styles",
    "shift_scatter",
    "stream_from_counts",
    "stream_from_evaluations",
    "svg",
    "swatch",
]
