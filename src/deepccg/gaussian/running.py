"""A classifier on running statistics, with or without a half-life."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from deepccg.gaussian.shared_covariance import ClassScores, ClassStatistics, likeliest_strength

LARGEST_UNIT = 2.0**20  # examples count more and more under a half-life, up to this


class FrozenClassifier(NamedTuple):
    """A classifier that does not change."""

    scores: ClassScores
    student_t: bool
    observed: bool

    def log_joint(self, z: Tensor) -> Tensor:
        """Log p(c) p(z | c) up to a term that all classes share, ``[B, C]``."""
        return self.scores.log_joint(z, student_t=self.student_t, observed=self.observed)


class RunningClassifier:
    """Class-conditional Gaussians of everything added, or of what came lately.

    Under a half-life of h examples, each new example counts 2^(1/h) times the one before it.

    What an answer needs is solved for when it is asked, in O(D^3), and dropped by the next step.
    With ``follow``, a classifier that is asked after every step keeps the inverse matrix and
    updates it by low rank, in O(B D^2); the answers are the same but for rounding.

    Args:
        statistics: Where it begins; they are its own from then on.
        strength: How many examples the covariance's prior is worth; ``None``: no covariance.
        student_t: Whether a class's density is its posterior predictive, or a Gaussian.
        observed: Whether classes are as probable as they were frequent, or all alike.
        half_life: In examples.
    """

    def __init__(
        self,
        statistics: ClassStatistics,
        strength: float | Literal["marginal-likelihood"] | None,
        *,
        student_t: bool = False,
        observed: bool = False,
        half_life: float = math.inf,
    ) -> None:
        self.statistics = statistics
        self.strength, self.half_life = strength, half_life
        self.student_t, self.observed = student_t, observed
        self.unit = 1.0  # what the latest example counts
        self.follow = False
        self._scores: ClassScores | None = None
        self._asked = False  # since the last change
        self._asked_often = False  # also before the last change

    def add(self, z: Tensor, y: Tensor) -> None:
        """Add examples ``z [B, D]`` of classes ``y [B]``."""
        self.unit *= 2 ** (len(y) / self.half_life)
        rows = self.statistics.add(z, y, self.unit)
        asked, self._asked = self._asked, False
        if self._scores is None or not asked or not self._follow(rows, torch.unique(y)):
            self._scores, self._asked_often = None, asked
        if self.unit > LARGEST_UNIT:
            self.statistics.scale(1 / self.unit)
            self.unit, self._scores = 1.0, None

    def _follow(self, rows: Tensor, classes: Tensor) -> bool:
        scores = self._scores
        return scores is not None and scores.follow(self.statistics, rows, classes, self.unit)

    def scores(self) -> ClassScores:
        """The present classifier. The next step may change it in place."""
        self._asked = True
        if self._scores is None:
            strength, follow = self.strength, self.follow and self._asked_often
            if strength == "marginal-likelihood":  # which needs the eigenvalues at every answer
                strength, follow = likeliest_strength(self.statistics), False
            inverse = self.student_t or (follow and self.statistics.matrix)
            self._scores = ClassScores(self.statistics, strength, self.unit, inverse=inverse)
        return self._scores

    def log_joint(self, z: Tensor) -> Tensor:
        """Log p(c) p(z | c) up to a term that all classes share, ``[B, C]``."""
        return self.scores().log_joint(z, student_t=self.student_t, observed=self.observed)

    def frozen(self) -> "FrozenClassifier":
        """The classifier as it is now; no later step changes it."""
        return FrozenClassifier(self.scores().snapshot(), self.student_t, self.observed)

    def changed(self) -> None:
        """Drop what was derived from the statistics, after somebody else has changed them."""
        self._scores, self._asked, self._asked_often = None, False, False

    @property
    def derived_bytes(self) -> int:
        """Bytes of the inverse, while there is one."""
        inverse = None if self._scores is None else self._scores.inverse
        return 0 if inverse is None else inverse.nbytes
