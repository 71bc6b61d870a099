"""Run directories, the records in them, and metrics as pure functions of these. No torch here."""

from deepccg.records.checks import RecordError
from deepccg.records.duplicates import duplicate_rank
from deepccg.records.files import (
    is_temporary,
    read_json_object,
    remove_temporaries,
    write_atomically,
)
from deepccg.records.intervals import Interval, Line, fit_line, mean_interval, paired_difference
from deepccg.records.metrics import (
    Estimate,
    Mode,
    accuracy_matrix,
    aggregate,
    anytime_accuracy,
    average_accuracy,
    backward_transfer,
    class_balanced_accuracy,
    class_incremental_by_task,
    estimate,
    forgetting,
    summary,
)
from deepccg.records.paper import PAPER_NAMES, PaperTable, paper_cell, paper_tables, paper_value
from deepccg.records.reader import (
    RunDirectory,
    append_record,
    find_runs,
    read_records,
    rewind_records,
)
from deepccg.records.schema import (
    ClassScore,
    Evaluation,
    Record,
    TaskScore,
    Training,
    record_from_json,
)
from deepccg.records.shift import Shift, ShiftMeasure, ShiftScale, shift_points
from deepccg.records.timing import Timing, read_timings, timings_text
from deepccg.records.toml import dotted, parse_toml, read_toml

__all__ = [
    "PAPER_NAMES",
    "ClassScore",
    "Estimate",
    "Evaluation",
    "Interval",
    "Line",
    "Mode",
    "PaperTable",
    "Record",
    "RecordError",
    "RunDirectory",
    "Shift",
    "ShiftMeasure",
    "ShiftScale",
    "TaskScore",
    "Timing",
    "Training",
    "accuracy_matrix",
    "aggregate",
    "anytime_accuracy",
    "append_record",
    "average_accuracy",
    "backward_transfer",
    "class_balanced_accuracy",
    "class_incremental_by_task",
    "dotted",
    "duplicate_rank",
    "estimate",
    "find_runs",
    "fit_line",
    "forgetting",
    "is_temporary",
    "mean_interval",
    "paired_difference",
    "paper_cell",
    "paper_tables",
    "paper_value",
    "parse_toml",
    "read_json_object",
    "read_records",
    "read_timings",
    "read_toml",
    "record_from_json",
    "remove_temporaries",
    "rewind_records",
    "shift_points",
    "summary",
    "timings_text",
    "write_atomically",
]
