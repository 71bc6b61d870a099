"""Scoring a learner on held-out images, task- and class-incrementally, in one pass over them."""

from deepccg.evaluation.evaluate import Witness, evaluate

__all__ = ["Witness", "evaluate"]
