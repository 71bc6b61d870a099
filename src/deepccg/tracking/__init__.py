"""Experiment trackers: MLflow, TensorBoard, Weights & Biases. All of them are extras."""

from deepccg.tracking.points import Point, Points, parameters
from deepccg.tracking.stores import TRACKERS, check_tracker, prepare_tracker
from deepccg.tracking.track import Tracked, tracked

__all__ = [
    "TRACKERS",
    "Point",
    "Points",
    "Tracked",
    "check_tracker",
    "parameters",
    "prepare_tracker",
    "tracked",
]
