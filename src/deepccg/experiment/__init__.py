"""Running experiments: configuration, the loop, checkpoints."""

from deepccg.experiment.build import build_learner, build_material, learner_class, resolve
from deepccg.experiment.config import (
    EvaluationConfig,
    MethodSettings,
    RunConfig,
    StreamConfig,
    validated,
)
from deepccg.experiment.load import TrainedRun, load, load_run
from deepccg.experiment.presets import PRESETS
from deepccg.experiment.run import RunResult, run

__all__ = [
    "PRESETS",
    "EvaluationConfig",
    "MethodSettings",
    "RunConfig",
    "RunResult",
    "StreamConfig",
    "TrainedRun",
    "build_learner",
    "build_material",
    "learner_class",
    "load",
    "load_run",
    "resolve",
    "run",
    "validated",
]
