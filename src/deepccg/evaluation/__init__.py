"""Scoring a learner on held-out images, task- and class-incrementally, in one pass over them."""

from deepccg.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
