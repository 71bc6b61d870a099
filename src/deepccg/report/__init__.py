"""Tables, figures and pages of what was measured.

What stands here needs records alone, no torch. Three modules need ``experiment`` and are imported
by name: ``assemble`` (run directories to the report), ``run_results`` (what the command line prints
after runs) and ``reproduction`` (the paper's experiments).
"""

import warnings

from deepccg.report.comparisons import Comparison, Row, group_runs
from deepccg.report.details import RowDetails
from deepccg.report.export import export_report
from deepccg.report.figures import series_styles
from deepccg.report.formatting import difference_text, in_percent, percent, slope_text
from deepccg.report.gallery import Stored
from deepccg.report.names import dataset_name, method_name, seeds_text, stream_name
from deepccg.report.page import report_page
from deepccg.report.runs import Run, read_run
from deepccg.report.summary import ResultRow, Scored, result_row, result_table, summary_json
from deepccg.report.table import Cell, Column, Table, TableRow
from deepccg.report.tables import (
    PairedRow,
    StreamTask,
    comparison_table,
    shift_table,
    stream_table,
)

__all__ = [
    "Cell",
    "Column",
    "Comparison",
    "PairedRow",
    "ResultRow",
    "Row",
    "RowDetails",
    "Run",
    "Scored",
    "Stored",
    "StreamTask",
    "Table",
    "TableRow",
    "comparison_table",
    "dataset_name",
    "difference_text",
    "export_report",
    "group_runs",
    "in_percent",
    "method_name",
    "percent",
    "read_run",
    "report_page",
    "result_row",
    "result_table",
    "seeds_text",
    "series_styles",
    "shift_table",
    "slope_text",
    "stream_name",
    "stream_table",
    "summary_json",
]

_RENAMED = {"About": "RowDetails", "grouped": "group_runs"}


def __getattr__(name: str) -> object:
    """Return what a deprecated name stands for now, with a warning."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    warnings.warn(f"deepccg.report.{name} is now {new}", DeprecationWarning, stacklevel=2)
    return globals()[new]
