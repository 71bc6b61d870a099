"""Herding: exemplars picked one by one so that their mean stays near the mean of their class."""

import torch
from torch import Tensor

from deepccg.gaussian.selection import Candidates


def herding_places(candidates: Candidates) -> Tensor:
    """At which place each candidate is picked, ``[K, N]``: 0 is the first, N means never.

    Place k goes to the candidate not picked before that minimises
    |target - (sum of those picked + z_i) / (k + 1)|, so the first k places do not depend on the
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
