"""A classifier on running statistics, with or without a half-life."""

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from deepccg.gaussian.class_statistics import ClassStatistics
from deepccg.gaussian.shared_covariance import ClassScores, likeliest_strength, most_rows

# Under a half-life examples count more and more, up to 2^20; then all before count less. What is
# forgotten still counts 2^-60, so that it is known where a class once was.
MOST_DOUBLINGS, MOST_HALVINGS = 20.0, 60.0


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
        self._few_rows = True  # came last, so that it may be worth while to follow them

    def add(self, z: Tensor, y: Tensor, weight: Tensor | None = None) -> None:
        """Add examples ``z [B, D]`` of classes ``y [B]``, each ``weight [B]`` times."""
        self._age(len(y) if weight is None else float(weight.sum()))
        rows = self.statistics.add(z, y, self.unit, weight)
        asked, self._asked = self._asked, False
        self._few_rows = len(rows) <= most_rows(self.statistics.dim)
        if not (asked and self._followed(rows, y if len(y) == 1 else torch.unique(y))):
            self._scores, self._asked_often = None, asked

    def _age(self, examples: float) -> None:
        """Let what is known count less, compared with so many new examples."""
        doublings = math.log2(self.unit) + examples / self.half_life
        if doublings <= MOST_DOUBLINGS:
            self.unit = 2.0**doublings
        else:
            self.statistics.scale(2.0 ** -min(doublings, MOST_HALVINGS))
            self.unit, self._scores = 1.0, None

    def _followed(self, rows: Tensor, classes: Tensor) -> bool:
        """Whether the present scores could be brought up to date."""
        if self._scores is None or not self._may_follow:
            return False
        return self._scores.follow(self.statistics, rows, classes, self.unit)

    @property
    def _may_follow(self) -> bool:
        """A strength that is chosen from the data needs their eigenvalues at every answer."""
        return self.follow and self.strength != "marginal-likelihood"

    def scores(self) -> ClassScores:
        """The present classifier. The next step may change it in place."""
        self._asked = True
        if self._scores is None:
            strength = self.strength
            if strength == "marginal-likelihood":
                strength = likeliest_strength(self.statistics)
            often = self._asked_often and self._few_rows
            follows = self._may_follow and often and self.statistics.matrix
            inverse = self.student_t or follows
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

    @property
    def weight_bytes(self) -> int:
        """Bytes of the classes' weights, while they are solved for."""
        return 0 if self._scores is None else self._scores.weight.nbytes
