"""Which stored examples a step replays."""

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


def give_back(slots: Tensor, y: Tensor) -> Tensor:
    """Drop one slot of every class that was drawn entirely, so that the rest still knows it."""
    if len(slots) == 0:
        return slots
    classes = int(y.max()) + 1
    drawn = torch.bincount(y[slots], minlength=classes)
    exhausted = (drawn > 0) & (drawn == torch.bincount(y, minlength=classes))
    own = y[slots]
    # The first slot drawn of each class: no earlier one has its class.
    earlier = torch.triu(own[:, None] == own[None, :], diagonal=1).any(dim=0)
    return slots[~(exhausted[own] & ~earlier)]
