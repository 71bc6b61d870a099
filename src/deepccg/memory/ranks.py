"""Places within groups, for all groups at once."""

import torch
from torch import Tensor


def rank_within(group: Tensor, key: Tensor) -> Tensor:
    """The place, from 0, of each of N entries when its group is sorted by ``key``, ``[N]``.

    Args:
        group: A number from 0 up for each entry, ``[N]``.
        key: What is compared, smallest first, ``[N]``; ties keep their order.

    >>> rank_within(torch.tensor([0, 0, 1, 0]), torch.tensor([7, 3, 5, 9])).tolist()
    [1, 0, 0, 2]
    """
    by_key = key.argsort(stable=True)
    by_group = by_key[group[by_key].argsort(stable=True)]
    sizes = torch.bincount(group)
    begins = sizes.cumsum(0) - sizes  # of each group in ``by_group``
    rank = torch.empty_like(group)
    rank[by_group] = torch.arange(len(group), device=group.device) - begins[group[by_group]]
    return rank
