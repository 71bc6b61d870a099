"""Tables, figures and pages of what was measured.

What stands here needs records alone, no torch. Three modules need ``experiment`` and are imported
by name: ``assemble`` (run directories to the report), ``run_results`` (what the command line prints
after runs) and ``reproduction`` (the paper's experiments).
"""

import warnings

from deepccg.report.catalogue import RowDetails, export_report
from deepccg.report.comparisons import Row, group_runs
from deepccg.report.figures import Stored, series_styles
from deepccg.report.formatting import difference_text, method_name, percent, seeds_text
from deepccg.report.page import report_page
from deepccg.report.runs import Run, read_run
from deepccg.report.tables import StreamTask, shift_table, stream_table

__all__ = [
    "Row",
    "RowDetails",
    "Run",
    "Stored",
    "StreamTask",
    "difference_text",
    "export_report",
    "group_runs",
    "method_name",
    "percent",
    "read_run",
    "report_page",
    "seeds_text",
    "series_styles",
    "shift_table",
    "stream_table",
]

_RENAMED = {"About": "RowDetails", "grouped": "group_runs"}


def __getattr__(name: str) -> object:
    """Return what a deprecated name stands for now, with a warning."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    new = _RENAMED[name]
    warnings.warn(f"deepccg.report.{name} is now {new}", DeprecationWarning, stacklevel=2)
    return globals()[new]
