"""What a generative classifier on a memory can tell besides its predictions."""

import logging
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from deepccg.core import InputError, TestSet
from deepccg.estimator.features import FloatArray
from deepccg.estimator.inputs import check_inputs
from deepccg.estimator.labels import IntArray, Labels, LabelTable
from deepccg.estimator.ood import strangeness
from deepccg.estimator.spec import is_generative, only_if
from deepccg.evaluation import ShiftMeter
from deepccg.gaussian import squared_distances
from deepccg.learners.base import NetworkLearner
from deepccg.methods.deepccg import DeepCCG

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


Table = dict[str, npt.NDArray[Any]]


class Inspection:
    """Questions to a fitted classifier; nothing here changes what it predicts or learns."""

    classes_: Labels
    learner_: NetworkLearner[Any]
    _labels: LabelTable
    _watch: ShiftWatch

    @only_if(is_generative)
    def ood_score(self, X: Any) -> FloatArray:  # noqa: N803  (scikit-learn's name)
        """How unlike anything learned each input is, ``[N]``: larger is stranger.

        Minus the log of the predictive density of its embedding under all classes seen, each
        equally likely, with the covariance that the stored examples have within their classes.
        """
        return strangeness(self._generative(), self._input(X)).cpu().numpy()

    @property
    def shift_(self) -> RepresentationShift:
        """What learning did to the stored examples' embeddings since this was last read.

        Read it for the first time, and the measurement begins: there is nothing to compare with.
        Without learning in between it says the same again. What it says is logged as well, as
        INFO to the logger ``deepccg``.
        """
        check_is_fitted(self)
        if "_watch" not in vars(self):
            self._watch = ShiftWatch()
        return self._watch.look(self.learner_)

    @property
    def evidence_(self) -> Table:
        """What each class rests on: how many examples were ``seen`` and are ``stored``, ``[K]``."""
        check_is_fitted(self)
        learner = self.learner_
        stored = torch.bincount(learner.memory.y, minlength=len(learner.class_table))
        table: Table = {"label": self.classes_}
        for name, counts in (("seen", learner.class_table.seen), ("stored", stored)):
            column = np.zeros(len(self.classes_), dtype=np.int64)
            column[self._column_positions()] = counts.cpu().numpy()
            table[name] = column
        return table

    @property
    def memory_(self) -> Table:
        """The stored examples, one row each: ``index``, ``label``, ``x`` and ``contribution``.

        The contribution, with a generative method, is the KL divergence of the posterior over
        the class's mean from what it would be without the example: infinite for the only one.
        """
        check_is_fitted(self)
        store = self.learner_.memory
        table: Table = {
            "index": np.arange(store.size),
            "label": self.classes_[self._column_positions()[store.y.cpu().numpy()]],
        }
        if isinstance(self.learner_, DeepCCG):
            table["contribution"] = _contributions(self.learner_).cpu().numpy()
        x = store.x.cpu()
        table["x"] = (x.permute(0, 2, 3, 1) if x.ndim == 4 else x).numpy().copy()
        return table

    @only_if(is_generative)
    def explain(self, X: Any, neighbours: int = 3) -> Table:  # noqa: N803
        """Why each input is classified as it is.

        Returns:
            ``distance [N, K]`` to the mean of each class, in the order of ``classes_`` and in
            standard deviations (NaN where nothing is stored), and of the nearest stored examples
            ``neighbour [N, n]`` (rows of ``memory_``), ``neighbour_label`` and
            ``neighbour_distance``.
        """
        learner, x = self._generative(), self._input(X)
        store = learner.memory
        if neighbours < 1:
            raise InputError(f"neighbours is {neighbours}: ask for one or more")
        z, stored = _scaled(learner, learner.as_input(x)), _scaled(learner, store.x)
        count = learner.current_classifier().posterior.count
        means = learner.current_classifier().posterior.mean * learner.current_classifier().scale
        apart = squared_distances(z, means).sqrt().masked_fill(count == 0, math.nan)
        distance = np.full((len(x), len(self.classes_)), np.nan)
        distance[:, self._column_positions()] = apart.cpu().numpy()
        near = squared_distances(z, stored).sqrt().topk(min(neighbours, store.size), largest=False)
        rows = near.indices.cpu().numpy()
        labels = self._column_positions()[store.y.cpu().numpy()]
        return {
            "distance": distance,
            "neighbour": rows,
            "neighbour_label": self.classes_[labels[rows]],
            "neighbour_distance": near.values.double().cpu().numpy(),
        }

    def _input(self, X: Any) -> Tensor:  # noqa: N803
        return check_inputs(self, X, reset=False)

    def _generative(self) -> DeepCCG:
        check_is_fitted(self)
        if not isinstance(self.learner_, DeepCCG):
            raise InputError("the method was changed after fitting: fit again")
        if self.learner_.memory.size == 0:
            raise InputError("the memory is empty: there is nothing to compare with")
        return self.learner_

    def _column_positions(self) -> IntArray:
        """Where the label of each of the learner's columns stands in ``classes_``, ``[C]``."""
        codes = np.array(self.learner_.classes, dtype=np.int64)
        return self._labels.positions()[codes]


@torch.no_grad()
def _scaled(learner: DeepCCG, x: Tensor) -> Tensor:
    """Embeddings in the units in which every class has unit variance, ``[B, D]``."""
    return learner.embed_shaped(x) * learner.current_classifier().scale


def _contributions(learner: DeepCCG) -> Tensor:
    """KL(N(m, I/n) || N(m without i, I/(n - 1))) for each stored example i, ``[M]``.

    Without i the mean moves by ``(z_i - m) / (n - 1)``.
    """
    store = learner.memory
    if store.size == 0:
        return torch.zeros(0, dtype=torch.float64)
    posterior, scale = (
        learner.current_classifier().posterior,
        learner.current_classifier().scale.double(),
    )
    n = posterior.count[store.y].double()
    away = (_scaled(learner, store.x).double() - posterior.mean[store.y] * scale).square().sum(1)
    moved = away / (n - 1).square()
    divergence = 0.5 * ((n - 1) * moved + learner.dim * (-1 / n - torch.log1p(-1 / n)))
    return torch.where(n > 1, divergence, torch.inf)
