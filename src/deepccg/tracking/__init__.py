"""Experiment trackers: MLflow, TensorBoard, Weights & Biases. All of them are extras."""

from deepccg.tracking.tracker import (
    TRACKERS,
    Point,
    Points,
    Tracked,
    check_tracker,
    parameters,
    prepare_tracker,
    tracked,
)

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
