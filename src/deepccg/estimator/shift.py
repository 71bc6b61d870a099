"""How far the stored examples' embeddings moved, and what an unmoved classifier makes of them."""

import logging
import math
from dataclasses import dataclass
from typing import Any

import torch

from deepccg.core import InputError, TestSet
from deepccg.evaluation import ShiftMeter
from deepccg.methods.base import NetworkLearner

_log = logging.getLogger("deepccg")


@dataclass(frozen=True)
class RepresentationShift:
    """What learning did, between two looks, to the examples stored at the first.

    Args:
        steps: Optimiser steps between the looks; 0 where there was no earlier look.
        examples: How many stored examples were followed.
        distance: Mean distance between an example's embeddings, then and now.
        relative: The same in units of the mean distance between two examples' embeddings, then.
        accuracy_before: Share of them classified correctly then.
        accuracy_after: Share classified correctly now.
        misalignment: Share classified correctly where today's embeddings meet the classifier of
            then, minus ``accuracy_after``: what would be lost, as a negative number, if the
            classifier had not followed.
    """

    steps: int = 0
    examples: int = 0
    distance: float = math.nan
    relative: float = math.nan
    accuracy_before: float = math.nan
    accuracy_after: float = math.nan
    misalignment: float = math.nan

    def told(self) -> str:
        """In one line."""
        return (
            f"in {self.steps} steps {self.examples} stored examples moved by {self.distance:.4g} "
            f"({self.relative:.1%} of the distance between two); {self.accuracy_before:.1%} of "
            f"them were classified correctly, now {self.accuracy_after:.1%}, with the classifier "
            f"of then {self.accuracy_after + self.misalignment:.1%}"
        )


class ShiftWatch:
    """Remembers the last look at a learner: stored examples, their embeddings, the classifier."""

    def __init__(self) -> None:
        self._meter: ShiftMeter | None = None
        self._steps = 0
        self._last = RepresentationShift()

    def look(self, learner: NetworkLearner[Any]) -> RepresentationShift:
        """What happened since the last look; the same again if nothing was learned since."""
        if self._meter is not None and learner.steps == self._steps:
            return self._last
        if learner.memory.size == 0:
            raise InputError("the memory is empty: there is no stored example to follow")
        if self._meter is not None:
            self._last = _report(self._meter, learner, learner.steps - self._steps)
            _log.info("%s", self._last.told())
        self._meter, self._steps = _meter(learner), learner.steps
        return self._last


def _meter(learner: NetworkLearner[Any]) -> ShiftMeter:
    labels = torch.tensor(learner.classes)[learner.memory.y.cpu()]
    return ShiftMeter(TestSet(learner.memory.x.clone(), labels, tasks=()), "class", learner)


def _report(meter: ShiftMeter, learner: NetworkLearner[Any], steps: int) -> RepresentationShift:
    found = meter.measure(learner, step=learner.steps, task=0)
    return RepresentationShift(
        steps=steps,
        examples=found.images,
        distance=found.distance,
        relative=math.nan if found.relative is None else found.relative,
        accuracy_before=found.correct_before / found.images,
        accuracy_after=found.correct_after / found.images,
        misalignment=found.misalignment,
    )
