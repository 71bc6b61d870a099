"""The nearest-neighbour estimate of a sample's entropy, and what each example contributes."""

import math

import torch
from torch import Tensor

TINY = 1e-12  # added to distances: copies of one example have distance 0, whose log is -inf


def pairwise_distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances ``[N, M]`` of points ``a [N, F]`` and ``b [M, F]``.

    Each entry depends on its two points only, bit for bit, whatever stands beside them: distances
    kept from earlier and distances computed anew are the same numbers.
    """
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def nearest_neighbour_entropy(distances: Tensor) -> Tensor:
    """``mean_i log eps_i`` from ``distances [N, N]``, eps_i the distance to the nearest other.

    The Kozachenko-Leonenko estimate of the entropy, up to the factor F and a constant in N.
    """
    apart = distances.double().clone().fill_diagonal_(math.inf)
    return (apart.min(dim=1).values + TINY).log().mean()


def entropy_without_each(distances: Tensor) -> Tensor:
    """``nearest_neighbour_entropy`` of what is left when each point is removed, ``[N]``.

    Without i, the points whose nearest neighbour it was fall back on their second nearest; so two
    neighbours per point give all N estimates. With at most one point left there is no estimate,
    and all are 0.
    """
    count = len(distances)
    if count < 3:
        return distances.new_zeros(count, dtype=torch.float64)
    apart = distances.double().clone().fill_diagonal_(math.inf)
    nearest = apart.topk(2, dim=1, largest=False)
    first, second = (nearest.values + TINY).log().unbind(dim=1)
    rise = torch.zeros_like(first).index_add_(0, nearest.indices[:, 0], second - first)
    return (first.sum() - first + rise) / (count - 1)
