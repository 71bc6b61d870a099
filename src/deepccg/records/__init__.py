"""Run directories, the records in them, and metrics as pure functions of these. No torch here."""

from deepccg.records.checks import RecordError
from deepccg.records.files import is_temporary, remove_temporaries, write_atomically
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
from deepccg.records.toml import parse_toml, read_toml

__all__ = [
    "ClassScore",
    "Estimate",
    "Evaluation",
    "Mode",
    "Record",
    "RecordError",
    "RunDirectory",
    "TaskScore",
    "Training",
    "accuracy_matrix",
    "aggregate",
    "anytime_accuracy",
    "append_record",
    "average_accuracy",
    "backward_transfer",
    "class_balanced_accuracy",
    "class_incremental_by_task",
    "estimate",
    "find_runs",
    "forgetting",
    "is_temporary",
    "parse_toml",
    "read_records",
    "read_toml",
    "record_from_json",
    "remove_temporaries",
    "rewind_records",
    "summary",
    "write_atomically",
]
