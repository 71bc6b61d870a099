"""Which stored examples a step replays."""

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor


def draw_uniform(y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` slots (or all) of ``y [M]``, uniformly without replacement."""
    return torch.randperm(len(y), generator=generator)[:count].to(y.device)


def draw_balanced(y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` slots (or all) without replacement, each class equally likely at the first draw."""
    count = min(count, len(y))
    if count == 0:
        return y.new_zeros(0)
    weight = 1.0 / torch.bincount(y).clamp(min=1)[y].double()
    return torch.multinomial(weight.cpu(), count, generator=generator).to(y.device)


def draw_grouped(task: Tensor, count: int, groups: int, generator: torch.Generator) -> Tensor:
    """``count`` slots (or all) from about ``groups`` random tasks, each slot equally likely.

    The M slots are laid out in a circle, tasks in random order and the slots of a task in random
    order. A pattern of ``groups`` blocks, together ``count`` long and evenly spaced, is laid on it
    at a uniformly random offset; what it covers is drawn. A slot is covered at exactly ``count`` of
    the M offsets, so it is drawn with probability ``count / M``, whatever its task, however many
    or few examples that task has, and however many tasks there are.

    A block of b slots that begins in a task of n reaches beyond it with probability (b - 1)/n at
    most, so tasks of n examples give ``groups (1 + (b - 1)/n)`` of them on average. Of each task
    the slots drawn are a uniformly random subset of its own; with one task that is
    ``draw_uniform``. What changes is only which slots come together.

    Args:
        task: The task row of each slot, ``[M]``.
        count: How many slots.
        groups: How many blocks.
        generator: What draws.
    """
    size = len(task)
    count = min(count, size)
    if count == 0:
        return task.new_zeros(0)
    groups = min(groups, count)
    place = torch.arange(count)
    block = place * groups // count
    pattern = place + block * (size - count) // groups  # the free places lie between the blocks
    offset = torch.randint(size, (1,), generator=generator)
    sizes = torch.bincount(task.cpu())
    present = sizes.nonzero().flatten()
    order = present[torch.randperm(len(present), generator=generator)]
    covered = torch.searchsorted(sizes[order].cumsum(0), (pattern + offset) % size, right=True)
    number = torch.bincount(covered)
    drawn = []
    for rank in number.nonzero().flatten().tolist():
        own = (task == int(order[rank])).nonzero().flatten()
        chosen = torch.randperm(len(own), generator=generator)[: int(number[rank])]
        drawn.append(own[chosen.to(own.device)])
    return torch.cat(drawn)


def give_back(slots: Tensor, y: Tensor, stored: Mapping[int, int]) -> Tensor:
    """Drop one slot of every class that was drawn entirely, so that the rest still knows it.

    Args:
        slots: Those drawn, ``[n]``.
        y: The class column of each slot, ``[M]``.
        stored: How many slots each class has.
    """
    own = y[slots].tolist()
    drawn = Counter(own)
    exhausted = [column for column, count in drawn.items() if count == stored[column]]
    if not exhausted:
        return slots
    returned = {own.index(column) for column in exhausted}  # the first slot drawn of each
    return slots[[i for i in range(len(own)) if i not in returned]]
