"""Run directories, the records in them, and metrics as pure functions of these. No torch here."""

from deepccg.records.archive import append_to_archive, is_archive, read_archive, write_directories
from deepccg.records.directory import (
    RunDirectory,
    append_record,
    find_run_directories,
    read_records,
    rewind_records,
)
from deepccg.records.files import (
    is_temporary,
    parse_toml,
    read_json_object,
    read_toml,
    remove_temporaries,
    write_atomically,
)
from deepccg.records.find import find_runs
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
from deepccg.records.naming import METHOD_ENTRIES, MethodEntry
from deepccg.records.paper import PAPER_NAMES, PaperTable, paper_cell, paper_tables, paper_value
from deepccg.records.run import RecordedRun, precedence
from deepccg.records.schema import (
    ClassScore,
    Evaluation,
    Record,
    Shift,
    ShiftMeasure,
    ShiftScale,
    TaskScore,
    Training,
    record_from_json,
    shift_points,
)
from deepccg.records.settings import flatten, merge, unflatten
from deepccg.records.statistics import Interval, Line, fit_line, mean_interval, paired_difference
from deepccg.records.timing import Timing, read_timings, timings_text
from deepccg.records.validation import RecordError

__all__ = [
    "METHOD_ENTRIES",
    "PAPER_NAMES",
    "ClassScore",
    "Estimate",
    "Evaluation",
    "Interval",
    "Line",
    "MethodEntry",
    "Mode",
    "PaperTable",
    "Record",
    "RecordError",
    "RecordedRun",
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
    "append_to_archive",
    "average_accuracy",
    "backward_transfer",
    "class_balanced_accuracy",
    "class_incremental_by_task",
    "estimate",
    "find_run_directories",
    "find_runs",
    "fit_line",
    "flatten",
    "forgetting",
    "is_archive",
    "is_temporary",
    "mean_interval",
    "merge",
    "paired_difference",
    "paper_cell",
    "paper_tables",
    "paper_value",
    "parse_toml",
    "precedence",
    "read_archive",
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
    "unflatten",
    "write_atomically",
    "write_directories",
]
