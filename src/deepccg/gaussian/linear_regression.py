"""Bayesian linear regression in which points come and go one at a time."""

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class LinearModel:
    """``t = W^T phi + noise`` per output, with a Gaussian prior on W, fitted to some of N points.

    For every point, fitted or not, the model knows the mean and the variance of its target given
    the fitted ones. Each output has the same variance, ``noise + leverage``.

    Args:
        features: phi of all points, ``[N, D]``.
        residuals: Target minus posterior mean, ``[N, C]``.
        leverage: ``phi^T covariance phi``, ``[N]``.
        covariance: Of each output's weights given the fitted points, ``[D, D]``.
        fitted: Which points the model is fitted to, ``[N]``.
        noise: Variance of the targets' noise.
    """

    features: Tensor
    residuals: Tensor
    leverage: Tensor
    covariance: Tensor
    fitted: Tensor
    noise: float

    def adding(self, point: int) -> "LinearModel":
        """The model fitted to one more point, by the Sherman-Morrison formula."""
        return self._changed(point, 1.0)

    def removing(self, point: int) -> "LinearModel":
        """The model fitted to one point fewer."""
        return self._changed(point, -1.0)

    def _changed(self, point: int, sign: float) -> "LinearModel":
        direction = self.covariance @ self.features[point]
        along = self.features @ direction
        scale = sign / (self.noise + sign * self.leverage[point])
        fitted = self.fitted.clone()
        fitted[point] = sign > 0
        return replace(
            self,
            residuals=self.residuals - torch.outer(scale * along, self.residuals[point]),
            leverage=self.leverage - scale * along.square(),
            covariance=self.covariance - torch.outer(scale * direction, direction),
            fitted=fitted,
        )

    def surprise(self) -> Tensor:
        """``-log p(t_i | the fitted points without i)``, ``[N]``."""
        # Being fitted has shrunk residual and leverage by the same factor; this is its inverse.
        growth = self.noise / (self.noise - self.leverage)
        return -self._log_density(torch.where(self.fitted, growth, 1.0))

    def learnability(self) -> Tensor:
        """``log p(t_i | the fitted points and i itself)``, ``[N]``."""
        shrinkage = self.noise / (self.noise + self.leverage)
        return self._log_density(torch.where(self.fitted, 1.0, shrinkage))

    def _log_density(self, factor: Tensor) -> Tensor:
        """Log density of each target, its residual and leverage multiplied by ``factor [N]``."""
        variance = self.noise + factor * self.leverage
        square = (factor[:, None] * self.residuals).square().sum(dim=1)
        outputs = self.residuals.shape[1]
        return -0.5 * (outputs * (2 * math.pi * variance).log() + square / variance)


def fit_linear_model(
    features: Tensor, targets: Tensor, fitted: Tensor, noise: float, prior: float
) -> LinearModel:
    """Fit to the points ``fitted [N]`` of ``features [N, D]`` and ``targets [N, C]``.

    ``noise`` is the variance of the targets, ``prior`` that of each weight before any is known.
    """
    known = features[fitted]
    identity = torch.eye(features.shape[1], dtype=features.dtype, device=features.device)
    precision = known.T @ known / noise + identity / prior
    covariance = torch.cholesky_inverse(torch.linalg.cholesky(precision))
    mean = covariance @ (known.T @ targets[fitted]) / noise
    leverage = ((features @ covariance) * features).sum(dim=1)
    return LinearModel(features, targets - features @ mean, leverage, covariance, fitted, noise)
