"""Gaussian class means with a proper prior and diagonal covariances, and Dirichlet class counts.

The model: p ~ Dir(a, ..., a), y ~ p, mu_c ~ N(m, diag v), z | y ~ N(mu_y, diag s). With s = 1 and
v -> infinity the posterior over means is that of ``class_posterior``.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from deepccg.gaussian.posterior import class_posterior

BLOCK = 256  # examples compared at once: bounds the [B, C, D] differences


@dataclass(frozen=True)
class Prototypes:
    """N(mean_c, diag variance_c) over the mean of each class c.

    Args:
        mean: ``[C, D]``.
        variance: ``[C, D]``.
    """

    mean: Tensor
    variance: Tensor


def update_prototypes(prior: Prototypes, z: Tensor, y: Tensor, noise: Tensor) -> Prototypes:
    """Condition on embeddings ``z [M, D]`` of classes ``y [M]``, given ``noise [D]``, s.

    With n_c examples of mean zbar_c: 1/v' = 1/v + n_c/s and m'/v' = m/v + n_c zbar_c/s, computed as
    a step of n_c v / (s + n_c v) towards zbar_c, which keeps its digits for v -> infinity.
    Conditioning on two sets one after the other is conditioning on both.

    >>> prior = Prototypes(torch.zeros(2, 1), torch.full((2, 1), 2.0))
    >>> update_prototypes(prior, torch.tensor([[3.0]]), torch.tensor([1]), torch.ones(1))
    Prototypes(mean=tensor([[0.],
            [2.]]), variance=tensor([[2.0000],
            [0.6667]]))
    """
    found = class_posterior(z, y, len(prior.mean))
    total = noise + found.count[:, None] * prior.variance
    gain = found.count[:, None] * prior.variance / total
    mean = prior.mean + gain * (found.mean - prior.mean)
    return Prototypes(mean=mean, variance=prior.variance * noise / total)


def log_prototype_predictive(z: Tensor, prototypes: Prototypes, noise: Tensor) -> Tensor:
    """Log N(z_b; mean_c, diag(variance_c + noise)), ``[B, C]``."""
    spread = prototypes.variance + noise
    normaliser = 0.5 * torch.log(2 * math.pi * spread).sum(dim=1)
    blocks = [
        ((part[:, None] - prototypes.mean).square() / spread).sum(dim=2)
        for part in torch.split(z, BLOCK)
    ]
    return -0.5 * torch.cat(blocks) - normaliser


def log_class_predictive(count: Tensor, prior_count: float) -> Tensor:
    """Log probability that the next example is of each class, given ``count [C]`` seen of each.

    Classes are drawn with probabilities p ~ Dir(a, ..., a), a = ``prior_count``:
    p(c) = (a + n_c) / (C a + n).
    """
    weight = count + prior_count
    return torch.log(weight / weight.sum())
