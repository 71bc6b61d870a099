"""Tables and pictures of what was measured; built on records alone."""

from deepccg.report.about import About
from deepccg.report.export import export_report
from deepccg.report.figures import series_styles
from deepccg.report.gallery import Stored
from deepccg.report.grouping import grouped
from deepccg.report.names import dataset_name, method_name, seeds_text, stream_name
from deepccg.report.page import report_page
from deepccg.report.paired_sheet import PairedRow, difference_text, paired_sheet, sheet_table
from deepccg.report.runs import Run, read_run
from deepccg.report.settings import Row, Setting
from deepccg.report.sheet import Sheet
from deepccg.report.shift_table import shift_sheet, slope_text
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
    "About",
    "PairedRow",
    "ResultRow",
    "Row",
    "Run",
    "Setting",
    "Sheet",
    "Stored",
    "StreamTask",
    "caption",
    "dataset_name",
    "difference_text",
    "export_report",
    "grouped",
    "method_name",
    "paired_sheet",
    "percent",
    "read_run",
    "report_page",
    "result_markdown",
    "result_row",
    "result_table",
    "seeds_text",
    "series_styles",
    "sheet_table",
    "shift_sheet",
    "slope_text",
    "stream_name",
    "stream_table",
    "summary_json",
]
