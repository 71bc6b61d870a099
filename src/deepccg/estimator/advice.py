"""Warnings, each once for a classifier, of what is known to go badly, with the cure."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from deepccg.estimator.encoders import EMBEDDING, chosen_encoder
from deepccg.methods.ccg import CCG

if TYPE_CHECKING:
    from deepccg.estimator.base import StreamClassifier
    from deepccg.estimator.spec import LearnerSpec

FEWEST_STORED = 5  # examples of a class, below which its mean is a guess
LARGEST_RATIO = 1e4  # of two features' deviations
HARDLY_USED = 0.05  # of many features: units of a network that hardly ever fire vary little
ROUNDING = 1e-9  # of a feature's size: it varies no more than that if it is constant
LARGEST_STEP = 300  # rows: many more than a step learns from
LOOKED_AT = 100  # examples after whose arrival inputs are no longer looked at
FEWEST_ROWS = 10  # that say something of the inputs


class DeepCCGWarning(UserWarning):
    """Something that the classifier can do, and does badly; the message says what to do instead."""


def advise(model: "StreamClassifier", x: Tensor) -> None:
    """Warn of what is new since the last call; ``x [N, ...]`` was just learned.

    Called while a failure still leaves everything as it was: a warning may be made an error.
    """
    given = vars(model).get("_advice", frozenset())
    for name, text in _found(model, x):
        if name not in given:
            model._advice = given = given | {name}
            warnings.warn(text, DeepCCGWarning, stacklevel=3)


def _found(model: "StreamClassifier", x: Tensor) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of all that applies now."""
    learner, spec = model.learner_, model._spec
    if isinstance(learner, CCG):
        yield from _found_in_sums(learner, spec, len(x))
        return
    classes = int((learner.class_table.seen > 0).sum())
    enough = FEWEST_STORED * classes
    if learner.memory.size and spec.memory < enough:
        text = (
            f"memory={spec.memory} is fewer than {FEWEST_STORED} stored examples for each of "
            f"{classes} classes: begin with memory={enough} or more, or take CCGClassifier, which "
            f"stores none"
        )
        yield "memory", text
    rows = min(len(x), vars(model).get("batch_size") or 0)
    if rows > LARGEST_STEP and learner.trainable_parameters():
        text = (
            f"a step of {rows} rows learns little more than one of 10: leave batch_size=None, "
            f"which makes several steps of a call, or set batch_size=10"
        )
        yield "batch_size", text
    if int(learner.class_table.seen.sum()) - len(x) < LOOKED_AT and len(spec.shape) == 1:
        yield from _found_in(x if len(x) >= FEWEST_ROWS else learner.memory.x, spec)


def _found_in(x: Tensor, spec: "LearnerSpec") -> Iterator[tuple[str, str]]:
    """Yield what the first inputs ``x [N, F]`` say."""
    if len(x) < FEWEST_ROWS or x.ndim != 2:
        return
    if spec.learns_from_vectors and chosen_encoder(x) == EMBEDDING:
        text = (
            "the inputs look like embeddings of unit length, from which a network has little to "
            "learn: take encoder='identity', or CCGClassifier, which leaves them as they are"
        )
        yield "embeddings", text
    if spec.learns_from_vectors and not spec.standardize:
        cure = "set standardize=True"
    elif spec.encoder == "identity":
        cure = "put a StandardScaler before"
    else:
        return  # which scales its inputs, or is the user's own
    x = x.double()
    variance, size = torch.var(x, dim=0, correction=0), x.abs().mean(dim=0)
    yield from _scales(variance, size, f"{cure}, or take CCGClassifier")


def _found_in_sums(learner: CCG, spec: "LearnerSpec", new: int) -> Iterator[tuple[str, str]]:
    """Yield what the sums of the first examples say, of which ``new`` have just come."""
    if spec.encoder != "identity" or len(spec.shape) != 1:
        return
    seen = int(learner.class_table.seen.sum())
    sums = learner.statistics.members[0].statistics
    if seen >= FEWEST_ROWS and seen - new < LOOKED_AT and sums.scatter is not None:
        cure = "leave encoder='auto', which standardises them, or put a StandardScaler before"
        yield from _scales(sums.scatter.dense().diagonal(), sums.mean.abs().amax(dim=0), cure)


def _scales(variance: Tensor, size: Tensor, cure: str) -> Iterator[tuple[str, str]]:
    """Yield whether features ``[F]`` of this size vary by far too different amounts."""
    deviation = variance.sqrt()
    deviation = deviation[deviation > ROUNDING * size]
    if not len(deviation):
        return
    smallest = deviation.sort().values[int(HARDLY_USED * (len(deviation) - 1))]
    ratio = float(deviation.max() / smallest)
    if ratio > LARGEST_RATIO:
        text = (
            f"the largest feature varies {ratio:.0g} times as much as the smallest, which then "
            f"count for nothing: {cure}"
        )
        yield "scales", text
