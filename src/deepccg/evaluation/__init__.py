"""Scoring a learner on held-out images, task- and class-incrementally, in one pass over them."""

from deepccg.evaluation.calibration import (
    Reliability,
    brier_score,
    expected_calibration_error,
    reliability,
)
from deepccg.evaluation.evaluate import PredictionCallback, evaluate
from deepccg.evaluation.representation_shift import ShiftMeter

__all__ = [
    "PredictionCallback",
    "Reliability",
    "ShiftMeter",
    "brier_score",
    "evaluate",
    "expected_calibration_error",
    "reliability",
]
