"""Running experiments: configuration, the loop, checkpoints."""

from deepccg.experiment.audit_report import protocol_line
from deepccg.experiment.build import build_learner, build_material, learner_class, resolve
from deepccg.experiment.checkpoint import CheckpointWarning
from deepccg.experiment.config import (
    EvaluationConfig,
    MethodSettings,
    RunConfig,
    StreamConfig,
    validated,
)
from deepccg.experiment.journal import resume_command
from deepccg.experiment.load import TrainedRun, load, load_run
from deepccg.experiment.presets import PRESETS
from deepccg.experiment.recorded import folder_of, recorded
from deepccg.experiment.run import RunResult, resume, run
from deepccg.experiment.stopping import Interrupted

__all__ = [
    "PRESETS",
    "CheckpointWarning",
    "EvaluationConfig",
    "Interrupted",
    "MethodSettings",
    "RunConfig",
    "RunResult",
    "StreamConfig",
    "TrainedRun",
    "build_learner",
    "build_material",
    "folder_of",
    "learner_class",
    "load",
    "load_run",
    "protocol_line",
    "recorded",
    "resolve",
    "resume",
    "resume_command",
    "run",
    "validated",
]
