"""Tables and pictures of what was measured; built on records alone."""

from deepccg.report.accuracy_plot import accuracy_over_time, plot_accuracy_over_time
from deepccg.report.comparison_plot import plot_comparison
from deepccg.report.stream_plot import plot_stream
from deepccg.report.stream_table import StreamTask, stream_table
from deepccg.report.tables import (
    ResultRow,
    caption,
    percent,
    result_markdown,
    result_row,
    result_table,
    summary_json,
)

__all__ = [
    "ResultRow",
    "StreamTask",
    "accuracy_over_time",
    "caption",
    "percent",
    "plot_accuracy_over_time",
    "plot_comparison",
    "plot_stream",
    "result_markdown",
    "result_row",
    "result_table",
    "stream_table",
    "summary_json",
]
