"""Running experiments: configuration, the loop, checkpoints."""

from deepccg.core import validated
from deepccg.experiment.audit.verdict import protocol_line
from deepccg.experiment.build import build_learner, build_run_data
from deepccg.experiment.config import RunConfig
from deepccg.experiment.guards import Interrupted, ask_to_stop, request_stop, stop_requests
from deepccg.experiment.load import TrainedRun, load, load_run, stored_examples
from deepccg.experiment.presets import PRESETS, SUCCESSORS
from deepccg.experiment.resolve import (
    learner_class,
    nested,
    overlay,
    parse_seeds,
    resolve,
    resolve_recorded,
    run_command,
)
from deepccg.experiment.result import RunResult
from deepccg.experiment.run import resume, run
from deepccg.experiment.session import (
    CheckpointWarning,
    ClassNeeded,
    folder_of,
    is_finished,
    read_run_config,
)
from deepccg.experiment.writer import resume_command

__all__ = [
    "PRESETS",
    "SUCCESSORS",
    "CheckpointWarning",
    "ClassNeeded",
    "Interrupted",
    "RunConfig",
    "RunResult",
    "TrainedRun",
    "ask_to_stop",
    "build_learner",
    "build_run_data",
    "folder_of",
    "is_finished",
    "learner_class",
    "load",
    "load_run",
    "nested",
    "overlay",
    "parse_seeds",
    "protocol_line",
    "read_run_config",
    "request_stop",
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
