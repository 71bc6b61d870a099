"""Experiment trackers: MLflow, TensorBoard, Weights & Biases. All of them are extras."""

from deepccg.tracking.tracker import Tracker, check_tracker, prepare_tracker, track_run

__all__ = ["Tracker", "check_tracker", "prepare_tracker", "track_run"]
