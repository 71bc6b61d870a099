"""Running experiments: configuration, the loop, checkpoints."""

from deepccg.experiment.audit_report import protocol_line
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
    validated,
)
from deepccg.experiment.directory import is_finished
from deepccg.experiment.film import REACH, Film, Reel, film
from deepccg.experiment.journal import resume_command
from deepccg.experiment.load import TrainedRun, load, load_run
from deepccg.experiment.presets import PRESETS
from deepccg.experiment.recorded import folder_of, recorded
from deepccg.experiment.run import RunResult, resume, run
from deepccg.experiment.seeds import parse_seeds
from deepccg.experiment.stopping import Interrupted, StopRequest, ask_to_stop, stop_requests
from deepccg.experiment.stored import StoredExamples, stored_examples

__all__ = [
    "PRESETS",
    "REACH",
    "CheckpointWarning",
    "EvaluationConfig",
    "Film",
    "Interrupted",
    "MethodSettings",
    "Reel",
    "RunConfig",
    "RunResult",
    "StopRequest",
    "StoredExamples",
    "StreamConfig",
    "TrainedRun",
    "ask_to_stop",
    "build_learner",
    "build_material",
    "film",
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
