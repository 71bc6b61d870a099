"""Rules for what is stored: the newest of each class, herding, nearest-neighbour entropy."""

import math

import numpy as np
import torch
from torch import Tensor

from deepccg.gaussian.selection import Candidates
from deepccg.memory.buffer import MemoryStore, rank_within
from deepccg.memory.quotas import replace


def write_rings(
    store: MemoryStore, x: Tensor, y: Tensor, task: Tensor, arrived: Tensor, quota: Tensor
) -> None:
    """Make the store hold the last ``quota [C]`` examples of each class, a new batch included.

    Every class is looked at: one whose quota shrank gives up its oldest. The store keeps the
    examples' numbers of arrival ``arrived [B]`` as a column of that name.
    """
    numbers = torch.cat([store["arrived"], arrived]) if store.size else arrived
    owner = torch.cat([store.y, y])
    keep = (rank_within(owner, -numbers) < quota[owner]).cpu().numpy()
    freed, admitted = np.flatnonzero(~keep[: store.size]), np.flatnonzero(keep[store.size :])
    replace(store, freed, {"x": x, "y": y, "task": task, "arrived": arrived}, admitted)


def herding_places(candidates: Candidates) -> Tensor:
    """At which place each candidate is picked, ``[K, N]``: 0 is the first, N means never.

    Place k goes to the candidate not picked before that minimises
    ``|target - (sum of those picked + z_i) / (k + 1)|``, so the first k places do not depend on the
    quota. Of equals the first is picked; stored candidates come before new ones.
    """
    # (k + 1) |target - (sum + z_i) / (k + 1)| is |S + c_i| with c = z - target, S their sum so far.
    centred = candidates.z - candidates.target[:, None]
    total = torch.zeros_like(candidates.target)
    free = candidates.real.clone()
    n_classes, length = free.shape
    places = torch.full_like(free, length, dtype=torch.int64)
    every = torch.arange(n_classes, device=free.device)
    for place in range(min(length, int(candidates.quota.max()))):
        cost = (total[:, None] + centred).square().sum(dim=2).masked_fill(~free, torch.inf)
        pick = cost.argmin(dim=1)
        left = free[every, pick]  # of a class without any left an old pick would come again
        places[every[left], pick[left]] = place
        total[left] += centred[every[left], pick[left]]
        free[every[left], pick[left]] = False
    return places


def herding(candidates: Candidates) -> Tensor:
    """Which candidates to keep, ``[K, N]``: the first ``quota`` that herding picks."""
    return herding_places(candidates) < candidates.quota[:, None].clamp(max=candidates.z.shape[1])


TINY = 1e-12  # added to distances: copies of one example have distance 0, whose log is -inf


def pairwise_distances(a: Tensor, b: Tensor) -> Tensor:
    """Euclidean distances ``[N, M]`` of points ``a [N, F]`` and ``b [M, F]``.

    Each entry depends on its two points only, bit for bit, whatever stands beside them: distances
    kept from earlier and distances computed again are the same numbers.
    """
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist")


def entropy_without_each(distances: Tensor) -> Tensor:
    """The entropy estimate of what is left when each of N points is removed, ``[N]``.

    From ``distances [N, N]``: ``mean_i log eps_i``, eps_i the distance to the nearest other, is the
    Kozachenko-Leonenko estimate up to the factor F and a constant in N. Without i, the points whose
    nearest neighbour it was fall back on their second nearest; so two neighbours per point give all
    N estimates. With at most one point left there is no estimate, and all are 0.
    """
    count = len(distances)
    if count < 3:
        return distances.new_zeros(count, dtype=torch.float64)
    apart = distances.double().clone().fill_diagonal_(math.inf)
    nearest = apart.topk(2, dim=1, largest=False)
    first, second = (nearest.values + TINY).log().unbind(dim=1)
    rise = torch.zeros_like(first).index_add_(0, nearest.indices[:, 0], second - first)
    return (first.sum() - first + rise) / (count - 1)
