"""Who is stored: reservoirs and quotas as functions of counts and a generator."""

from collections.abc import Sequence

import torch
from torch import Tensor

from deepccg.gaussian.selection import Candidates, keep_largest
from deepccg.memory.store import MemoryStore


def reservoir_slots(seen: int, capacity: int, count: int, generator: torch.Generator) -> Tensor:
    """Slots for ``count`` new examples by Vitter's algorithm R; -1 means not stored.

    The example that arrives after n others goes to slot n while there is room; then a slot is
    drawn uniformly from {0, ..., n}, n + 1 values, and used if it exists. After any number of
    examples each is stored with the same probability. If two examples of a call draw the same
    slot, the later one owns it and the earlier is marked -1.
    """
    order = torch.arange(seen, seen + count, dtype=torch.float64)
    drawn = (torch.rand(count, generator=generator, dtype=torch.float64) * (order + 1)).long()
    slots = torch.where(order < capacity, order.long(), drawn)
    slots = torch.where(slots < capacity, slots, -1)
    later_owner = torch.triu(slots[:, None] == slots[None, :], diagonal=1).any(dim=1)
    return slots.masked_fill(later_owner, -1)


def offer_to_reservoir(
    store: MemoryStore,
    x: Tensor,
    y: Tensor,
    task: Tensor,
    *,
    seen: int,
    generator: torch.Generator,
    capacity: int | None = None,
    **extras: Tensor,
) -> None:
    """Offer a batch that comes after ``seen`` other examples to one reservoir over all of them.

    ``capacity`` may be smaller than the store's; ``extras`` are further columns ``[B, ...]``.
    """
    slots = reservoir_slots(
        seen, store.capacity if capacity is None else capacity, len(y), generator
    )
    stored = slots >= 0
    kept = {name: column[stored] for name, column in extras.items()}
    store.write(slots[stored], x[stored], y[stored], task[stored], **kept)


def class_quotas(total: int, n_classes: int) -> list[int]:
    """Share a memory among classes; the remainder goes, one each, to the classes seen first.

    >>> class_quotas(10, 4)
    [3, 3, 2, 2]
    """
    share, remainder = divmod(total, max(n_classes, 1))
    return [share + (rank < remainder) for rank in range(n_classes)]


def quotas_by_arrival(
    total: int, arrival: Sequence[int], n_columns: int, n_sharing: int
) -> list[int]:
    """Each column's quota when ``n_sharing`` classes share a memory.

    Args:
        total: Examples to share.
        arrival: Columns in the order their first examples came; others get nothing yet.
        n_columns: How many columns there are.
        n_sharing: How many classes share, come or still to come.

    >>> quotas_by_arrival(10, arrival=[2, 0], n_columns=4, n_sharing=4)
    [3, 0, 3, 0]
    """
    quotas = [0] * n_columns
    for column, quota in zip(arrival, class_quotas(total, n_sharing), strict=False):
        quotas[column] = quota
    return quotas


def balanced_random(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """Keep a uniformly random subset of each class's candidates, ``[K, N]``."""
    equal = torch.zeros_like(candidates.real, dtype=torch.float32)
    return keep_largest(equal, candidates.real, candidates.quota, generator)


def class_balanced_reservoir(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """A reservoir of its own for each class: every example seen of it is equally likely kept.

    Candidates of a class are ordered: the stored ones, then the new ones as they came.
    """
    keep = torch.zeros_like(candidates.real)
    stored = candidates.stored.sum(dim=1).tolist()
    real = candidates.real.sum(dim=1).tolist()
    quota: Sequence[int] = candidates.quota.tolist()
    for k, seen in enumerate(candidates.seen.tolist()):
        if stored[k] > quota[k]:  # the quota shrank: forget at random first
            chosen = torch.randperm(stored[k], generator=generator)[: quota[k]].tolist()
        else:
            chosen = list(range(stored[k]))
        # With room left a new example is stored; later it replaces with probability quota/(n+1).
        for position in range(stored[k], real[k]):
            if len(chosen) < quota[k]:
                chosen.append(position)
                continue
            n = seen + position - stored[k]
            slot = int(torch.randint(n + 1, (1,), generator=generator))
            if slot < quota[k]:
                chosen[slot] = position
        keep[k, chosen] = True
    return keep
