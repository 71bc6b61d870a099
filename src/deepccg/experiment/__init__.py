"""Running experiments: configuration, the loop, checkpoints."""

from deepccg.core import validated
from deepccg.experiment.audit.verdict import protocol_line
from deepccg.experiment.build import (
    build_learner,
    build_material,
    learner_class,
    nested,
    resolve,
    resolve_recorded,
)
from deepccg.experiment.checkpoint import CheckpointWarning
from deepccg.experiment.command import run_command
from deepccg.experiment.config import (
    EvaluationConfig,
    MethodSettings,
    RunConfig,
    StreamConfig,
)
from deepccg.experiment.guards import Interrupted, StopRequest, ask_to_stop, stop_requests
from deepccg.experiment.load import StoredExamples, TrainedRun, load, load_run, stored_examples
from deepccg.experiment.presets import PRESETS
from deepccg.experiment.run import RunResult, resume, run
from deepccg.experiment.seeds import parse_seeds
from deepccg.experiment.session import folder_of, is_finished, recorded
from deepccg.experiment.writer import resume_command

__all__ = [
    "PRESETS",
    "CheckpointWarning",
    "EvaluationConfig",
    "Interrupted",
    "MethodSettings",
    "RunConfig",
    "RunResult",
    "StopRequest",
    "StoredExamples",
    "StreamConfig",
    "TrainedRun",
    "ask_to_stop",
    "build_learner",
    "build_material",
    "folder_of",
    "is_finished",
    "learner_class",
    "load",
    "load_run",
    "nested",
    "parse_seeds",
    "protocol_line",
    "recorded",
    "resolve",
    "resolve_recorded",
    "resume",
    "resume_command",
    "run",
    "run_command",
    "stop_requests",
    "stored_examples",
    "validated",
]
