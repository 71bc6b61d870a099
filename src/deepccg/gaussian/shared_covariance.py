r"""Class-conditional Gaussians with one shared covariance, in closed form, on fixed features.

The model: z | y ~ N(mu_y, Sigma), a flat prior on every mean (the paper's a -> infinity) and
Sigma ~ inverse-Wishart(Psi_0, nu_0) with Psi_0 = nu tau I and nu_0 = nu + D + 1, so that the prior
mean of Sigma is tau I and nu says how many examples it is worth. Given N examples of C classes with
means m_c, counts n_c and scatter S = sum (z - m_y)(z - m_y)^T, M = N - C degrees of freedom:

- Sigma has the posterior inverse-Wishart(Psi_0 + S, nu_0 + M) and the mean (Psi_0 + S) / (nu + M);
- mu_c given Sigma has the posterior N(m_c, Sigma / n_c);
- the predictive of a class is a Student t with nu + M + 2 degrees of freedom around m_c.

Counts, means and S are all that the data enter by. They add, so the order of a stream does not
matter, statistics of two streams can be merged, and examples can be taken out again.
"""

import copy
import math
from typing import NamedTuple

import torch
from torch import Tensor

from deepccg.gaussian.class_statistics import ClassStatistics

# Ridges are powers of this: between two of them the inverse follows the scatter by low rank.
RIDGE_STEP = 2.0**0.25


class Prior(NamedTuple):
    """The inverse-Wishart prior of the covariance, next to what the data say.

    Sigma's posterior mean is (nu tau I + S) / (nu + M), with tau = tr S / (D M), the mean variance
    within classes.

    Args:
        ridge: nu tau, which is added to the scatter's diagonal.
        strength: nu.
        freedom: M.
    """

    ridge: float
    strength: float
    freedom: float


def prior_beside(statistics: ClassStatistics, strength: float | None, unit: float = 1.0) -> Prior:
    """The prior that is worth ``strength`` examples.

    The ridge is rounded to a power of ``RIDGE_STEP``, so that tau is met to 9 %. Where nothing is
    known of the spread, because no class has two different examples, the covariance is I.

    Args:
        statistics: What was seen.
        strength: nu; ``None``: the covariance is tau I, the scatter is left out.
        unit: What one example counts in ``statistics``.
    """
    freedom = degrees_of_freedom(statistics, unit)
    ridge = (
        float(statistics.trace) / statistics.dim * (1 if strength is None else strength / freedom)
    )
    if not ridge > 0:
        return Prior(ridge=1.0, strength=1 / unit, freedom=0.0)
    steps = round(math.log(ridge) / math.log(RIDGE_STEP))
    return Prior(RIDGE_STEP**steps, strength or 0.0, freedom)


def degrees_of_freedom(statistics: ClassStatistics, unit: float = 1.0) -> float:
    """M: examples seen beyond the first of each class, at least 1."""
    return max(float((statistics.count / unit - 1).clamp(min=0).sum()), 1.0)


def log_marginal_likelihood(
    eigenvalues: Tensor, count: Tensor, strength: float, variance: float
) -> float:
    """Log density of all examples but the first of each class, given those, in closed form.

    It is the sum of the one-step Student t log predictives, in any order.

    Args:
        eigenvalues: Of the scatter S, ``[D]``.
        count: Examples of each class, ``[C]``.
        strength: nu.
        variance: tau.
    """
    dim = len(eigenvalues)
    count = count[count > 0]
    freedom = float(count.sum()) - len(count)  # M
    prior = strength + dim + 1  # nu_0
    half = torch.tensor([(prior + freedom) / 2, prior / 2], dtype=torch.float64)
    gamma = torch.special.multigammaln(half, dim)
    ridge = strength * variance
    return (
        float(gamma[0] - gamma[1])
        - freedom * dim / 2 * math.log(math.pi)
        - dim / 2 * float(count.log().sum())
        + prior * dim / 2 * math.log(ridge)
        - (prior + freedom) / 2 * float((eigenvalues.clamp(min=0) + ridge).log().sum())
    )


def likeliest_strength(statistics: ClassStatistics) -> float:
    """The strength nu with the highest marginal likelihood; costs one eigendecomposition."""
    freedom = degrees_of_freedom(statistics)
    variance = float(statistics.trace) / statistics.dim / freedom
    if statistics.scatter is None or not variance > 0:
        return 1.0
    eigenvalues = torch.linalg.eigvalsh(statistics.scatter.dense(torch.float64))
    strengths: list[float] = [
        2.0 ** (k / 4) for k in range(-8, 81)
    ]  # a quarter of an example to a million
    return max(
        strengths,
        key=lambda nu: log_marginal_likelihood(eigenvalues, statistics.count, nu, variance),
    )


def most_rows(dim: int) -> int:
    """How many rows ``ClassScores.follow`` takes: with more, a fresh solve is as fast."""
    return dim // 4


class ClassScores:
    """What the statistics say of an example's class: scores ``[B, D] -> [B, C]``.

    Args:
        statistics: What was seen.
        strength: How many examples the prior is worth; ``None``: no scatter is used.
        unit: What one example counts in ``statistics``.
        inverse: Whether to keep the inverse matrix, which ``student_t`` and ``follow`` need.
    """

    MOST_UPDATES = 1000  # by low rank; then rounding errors are cleared by a fresh solve

    def __init__(
        self,
        statistics: ClassStatistics,
        strength: float | None,
        unit: float = 1.0,
        *,
        inverse: bool = False,
    ) -> None:
        self.strength, self.updates = strength, 0
        self.inverse: Tensor | None = None  # (S + ridge I)^-1, [D, D]
        self._describe(statistics, prior_beside(statistics, strength, unit), unit)
        self.centre = statistics.mean[statistics.count > 0].double().mean(dim=0)
        mean = self._centred_means(statistics)
        if statistics.scatter is None:
            self.log_det = statistics.dim * math.log(self.prior.ridge)
            self.weight = mean / self.prior.ridge
        else:
            matrix = statistics.scatter.dense(torch.float64)
            matrix.diagonal().add_(self.prior.ridge)
            factor = _cholesky(matrix, self.prior.ridge)
            self.log_det = 2 * float(factor.diagonal().log().sum())
            if inverse:
                self.inverse = torch.cholesky_inverse(factor)
            self.weight = torch.cholesky_solve(mean.T, factor).T.contiguous()  # [C, D]
        self.square = (mean * self.weight).sum(dim=1)  # [C]

    def follow(
        self, statistics: ClassStatistics, rows: Tensor, classes: Tensor, unit: float = 1.0
    ) -> bool:
        """Follow statistics to which examples of ``classes [K]`` were added, in O(R D^2).

        Args:
            statistics: As they are now.
            rows: What ``ClassStatistics.add`` returned, ``[R, D]``.
            classes: Those whose means moved.
            unit: What one example counts in ``statistics`` now.

        Returns:
            Whether that was possible. If not, nothing has changed and a new object is needed: the
            ridge is another, there are too many rows, or rounding errors are due to be cleared.
        """
        prior = prior_beside(statistics, self.strength, unit)
        few = len(rows) <= most_rows(statistics.dim) and self.updates < self.MOST_UPDATES
        if self.inverse is None or prior.ridge != self.prior.ridge or not few:
            return False
        # Woodbury: (A + U^T U)^-1 = P - P U^T (I + U P U^T)^-1 U P, with P = A^-1.
        projected = rows @ self.inverse  # [R, D]
        middle = projected @ rows.T
        middle.diagonal().add_(1.0)
        one = len(rows) == 1  # then the same in a fifth of the time
        factor = middle.sqrt() if one else torch.linalg.cholesky(middle)
        correction = projected / middle if one else torch.cholesky_solve(projected, factor)
        self.inverse.addmm_(projected.T, correction, alpha=-1.0)
        self.log_det += 2 * float(factor.diagonal().log().sum())
        mean = self._centred_means(statistics)
        known = len(self.weight)
        weight = mean.new_empty(mean.shape)
        weight[:known] = self.weight - (mean[:known] @ correction.T) @ projected
        weight[classes] = mean[classes] @ self.inverse
        self.weight, self.square = weight, (mean * weight).sum(dim=1)
        self._describe(statistics, prior, unit)
        self.updates += 1
        return True

    def log_joint(self, z: Tensor, *, student_t: bool = False, observed: bool = False) -> Tensor:
        """Log p(c) p(z | c) up to a term that all classes share, ``[B, C]``.

        Args:
            z: Features ``[B, D]``.
            student_t: Whether a class's density is its posterior predictive, or a Gaussian.
            observed: Whether classes are as probable as they were frequent, or all alike.
        """
        density = self.student_t(z) if student_t else self.plug_in(z)
        return density + self.count.log() if observed else density

    def snapshot(self) -> "ClassScores":
        """A copy that no later ``follow`` changes."""
        copied = copy.copy(self)
        copied.inverse = None if self.inverse is None else self.inverse.clone()
        return copied

    def plug_in(self, z: Tensor) -> Tensor:
        """Log N(z; m_c, Sigma) with Sigma's posterior mean, without the terms all classes share."""
        return self.precision * ((z.double() - self.centre) @ self.weight.T - self.square / 2)

    def student_t(self, z: Tensor) -> Tensor:
        """Log density of the posterior predictive of each class, a multivariate Student t.

        With Psi = Psi_0 + S its scale matrix is (1 + 1/n_c) Psi / (nu + M + 2).
        """
        if self.inverse is None:
            raise ValueError("the inverse was not kept")
        dim, freedom = z.shape[1], self.prior.strength + self.prior.freedom + 2
        offset = z.double() - self.centre
        own = ((offset @ self.inverse) * offset).sum(dim=1, keepdim=True)
        distance = (own - 2 * offset @ self.weight.T + self.square).clamp(min=0) * self.unit
        spread = 1 + 1 / self.count  # infinite for a class without examples
        log_det = self.log_det - dim * math.log(self.unit)
        half = torch.tensor([(freedom + dim) / 2, freedom / 2], dtype=torch.float64)
        gamma = torch.special.gammaln(half)
        constant = float(gamma[0] - gamma[1]) - dim / 2 * math.log(math.pi) - log_det / 2
        return (
            constant - dim / 2 * spread.log() - (freedom + dim) / 2 * torch.log1p(distance / spread)
        )

    def _describe(self, statistics: ClassStatistics, prior: Prior, unit: float) -> None:
        self.prior, self.unit = prior, unit
        self.count = statistics.count / unit
        self.precision = unit * (prior.strength + prior.freedom)  # Sigma^-1 in units of the inverse

    def _centred_means(self, statistics: ClassStatistics) -> Tensor:
        """Class means seen from ``centre``, ``[C, D]``; 0 for classes without examples."""
        mean = statistics.mean.double() - self.centre
        return mean.masked_fill((statistics.count <= 0)[:, None], 0.0)


def _cholesky(matrix: Tensor, ridge: float) -> Tensor:
    """Cholesky factor of a scatter with its ridge.

    Taking examples out may leave eigenvalues that are negative by rounding: they count as 0.
    """
    factor: Tensor
    factor, failed = torch.linalg.cholesky_ex(matrix)
    if bool(failed):
        values, vectors = torch.linalg.eigh(matrix)
        factor = torch.linalg.cholesky((vectors * values.clamp(min=ridge)) @ vectors.T)
    return factor
