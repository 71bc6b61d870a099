"""A ring for each class: the store holds the last examples that came of it."""

import torch
from torch import Tensor

from deepccg.memory.ranks import rank_within
from deepccg.memory.store import MemoryStore


def newest_of_each_class(y: Tensor, arrived: Tensor, quota: Tensor) -> Tensor:
    """Which of N examples are among the last ``quota [C]`` of their class, ``[N]``.

    Args:
        y: Their class columns ``[N]``.
        arrived: A number that grew with each arrival, ``[N]``.
        quota: How many of each class to keep, ``[C]``.

    >>> y, arrived = torch.tensor([0, 0, 1, 0]), torch.tensor([7, 3, 5, 9])
    >>> newest_of_each_class(y, arrived, torch.tensor([2, 1])).tolist()
    [True, False, True, True]
    """
    return rank_within(y, -arrived) < quota[y]


def write_rings(
    store: MemoryStore, x: Tensor, y: Tensor, task: Tensor, arrived: Tensor, quota: Tensor
) -> None:
    """Make the store hold the last ``quota [C]`` examples of each class, a new batch included.

    Every class is looked at: one whose quota shrank gives up its oldest. The store keeps the
    examples' numbers of arrival ``arrived [B]`` as a column of that name.
    """
    numbers = torch.cat([store["arrived"], arrived]) if store.size else arrived
    keep = newest_of_each_class(torch.cat([store.y, y]), numbers, quota)
    freed = (~keep[: store.size]).nonzero().flatten()
    entering = keep[store.size :].nonzero().flatten()
    reused = min(len(freed), len(entering))
    appended = torch.arange(store.size, store.size + len(entering) - reused, device=freed.device)
    slots = torch.cat([freed[:reused], appended])
    store.write(slots, x[entering], y[entering], task[entering], arrived=arrived[entering])
    if len(freed) > reused:
        store.remove(freed[reused:])
