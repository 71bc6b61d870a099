"""Reports on a fitted classifier: counts, stored examples, explanations, representation shift."""

import logging
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepccg.core import InputError, TestSet
from deepccg.estimator.labels import LabelTable
from deepccg.evaluation import ShiftMeter
from deepccg.gaussian import squared_distances
from deepccg.learners.base import NetworkLearner, predicting
from deepccg.methods.deepccg import DeepCCG

Table = dict[str, npt.NDArray[Any]]  # columns by name

_log = logging.getLogger("deepccg")


@dataclass(frozen=True)
class RepresentationShift:
    """What learning did, between two measurements, to the examples stored at the first.

    Args:
        steps: Optimiser steps in between; 0 for the first measurement.
        examples: How many stored examples were followed.
        distance: Mean distance between an example's embeddings, before and after.
        relative: The same in units of the mean distance between two examples' embeddings, before.
        accuracy_before: Share of them classified correctly before.
        accuracy_after: Share classified correctly after.
        misalignment: Share classified correctly where the embeddings after meet the classifier
            before, minus ``accuracy_after``: what would be lost, as a negative number, if the
            classifier had not followed.
    """

    steps: int = 0
    examples: int = 0
    distance: float = math.nan
    relative: float = math.nan
    accuracy_before: float = math.nan
    accuracy_after: float = math.nan
    misalignment: float = math.nan

    def __str__(self) -> str:
        return (
            f"in {self.steps} steps {self.examples} stored examples moved by {self.distance:.4g} "
            f"({self.relative:.1%} of the distance between two); {self.accuracy_before:.1%} of "
            f"them were classified correctly, now {self.accuracy_after:.1%}, with the classifier "
            f"of then {self.accuracy_after + self.misalignment:.1%}"
        )


class NothingToFollow(InputError, AttributeError):
    """There is no representation shift; being an ``AttributeError``, ``hasattr`` says so."""


class ShiftMonitor:
    """Follows stored examples, their embeddings and the classifier since the last measurement."""

    def __init__(self) -> None:
        self._meter: ShiftMeter | None = None
        self._steps = 0
        self._last = RepresentationShift()

    def measure(self, learner: NetworkLearner[Any]) -> RepresentationShift:
        """Return the shift since the last call; the same again if nothing was learned since."""
        if self._meter is not None and learner.steps == self._steps:
            return self._last
        if learner.memory.size == 0:
            raise NothingToFollow("the memory is empty: there is no stored example to follow")
        if self._meter is not None:
            found = self._meter.measure(learner, step=learner.steps, task=0)
            self._last = RepresentationShift(
                steps=learner.steps - self._steps,
                examples=found.images,
                distance=found.distance,
                relative=math.nan if found.relative is None else found.relative,
                accuracy_before=found.correct_before / found.images,
                accuracy_after=found.correct_after / found.images,
                misalignment=found.misalignment,
            )
            _log.info("%s", self._last)
        labels = torch.tensor(learner.classes)[learner.memory.y.cpu()]
        stored = TestSet(learner.memory.x.clone(), labels, tasks=())
        self._meter, self._steps = ShiftMeter(stored, "class", learner), learner.steps
        return self._last


def class_counts(learner: NetworkLearner[Any], labels: LabelTable) -> Table:
    """Return how many examples of each class were ``seen`` and are ``stored``, ``[K]``."""
    stored = torch.bincount(learner.memory.y, minlength=len(learner.class_table))
    table: Table = {"label": labels.labels}
    for name, counts in (("seen", learner.class_table.seen), ("stored", stored)):
        table[name] = np.zeros(len(labels), dtype=np.int64)
        table[name][labels.positions(learner.classes)] = counts.cpu().numpy()
    return table


def stored_examples(learner: NetworkLearner[Any], labels: LabelTable) -> Table:
    """Return the memory, a row for each example; see ``DeepCCGClassifier.memory_``."""
    store = learner.memory
    own_labels = labels.labels[labels.positions(learner.classes)]
    table: Table = {"index": np.arange(store.size), "label": own_labels[store.y.cpu().numpy()]}
    if isinstance(learner, DeepCCG):
        table["contribution"] = _contributions(learner).cpu().numpy()
    x = store.x.cpu()
    table["x"] = (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).numpy().copy()
    return table


def explain(learner: DeepCCG, labels: LabelTable, x: Tensor, neighbours: int) -> Table:
    """Return distances to class means and stored examples; see ``DeepCCGClassifier.explain``."""
    if neighbours < 1:
        raise InputError(f"neighbours is {neighbours}: ask for one or more")
    store, positions = learner.memory, labels.positions(learner.classes)
    z, stored = _scaled(learner, learner.as_input(x)), _scaled(learner, store.x)
    posterior, scale, _ = learner.current_classifier()
    to_means = squared_distances(z, posterior.mean * scale).sqrt()
    to_means = to_means.masked_fill(posterior.count == 0, math.nan)
    distance = np.full((len(x), len(labels)), np.nan)
    distance[:, positions] = to_means.cpu().numpy()
    near = squared_distances(z, stored).sqrt().topk(min(neighbours, store.size), largest=False)
    slots = near.indices.cpu().numpy()
    return {
        "distance": distance,
        "neighbour": slots,
        "neighbour_label": labels.labels[positions[store.y.cpu().numpy()[slots]]],
        "neighbour_distance": near.values.double().cpu().numpy(),
    }


def require_densities(learner: NetworkLearner[Any]) -> DeepCCG:
    """Return the learner, if it has class densities and a stored example."""
    if not isinstance(learner, DeepCCG):
        raise InputError("the method was changed after fitting: fit again")
    if learner.memory.size == 0:
        raise InputError("the memory is empty: there is nothing to compare with")
    return learner


@predicting
def _scaled(learner: DeepCCG, x: Tensor) -> Tensor:
    """Return embeddings in units in which every class has unit variance, ``[B, D]``."""
    return learner.embed_shaped(x) * learner.current_classifier().scale


def _contributions(learner: DeepCCG) -> Tensor:
    """Return KL(N(m, I/n) || N(m without i, I/(n - 1))) for each stored example i, ``[M]``.

    Without i the mean moves by ``(z_i - m) / (n - 1)``.
    """
    store = learner.memory
    if store.size == 0:
        return torch.zeros(0, dtype=torch.float64)
    posterior, scale, _ = learner.current_classifier()
    n = posterior.count[store.y].double()
    centre = posterior.mean[store.y] * scale.double()
    moved = (_scaled(learner, store.x).double() - centre).square().sum(1) / (n - 1).square()
    divergence = 0.5 * ((n - 1) * moved + learner.dim * (-1 / n - torch.log1p(-1 / n)))
    return torch.where(n > 1, divergence, torch.inf)
