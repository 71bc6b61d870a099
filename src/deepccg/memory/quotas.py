"""Quotas per class: stored and new examples compete for them, at random or by a selection."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deepccg.gaussian.selection import BoolArray, Candidates, IntArray, keep_largest
from deepccg.memory.buffer import MemoryStore

NO_SLOTS: IntArray = np.empty(0, dtype=np.int64)  # an empty list of slots


@dataclass(frozen=True)
class CandidateIndex:
    """Where the candidates of K classes are, padded to N.

    Args:
        classes: The class columns being reselected, K of them.
        position: ``[K, N]`` into stored examples followed by the batch; stored come first.
        real: Which entries are candidates and not padding, ``[K, N]``.
        stored: Which are in memory already, ``[K, N]``.
    """

    classes: list[int]
    position: IntArray
    real: BoolArray
    stored: BoolArray

    def changes(self, keep: BoolArray, size: int) -> tuple[IntArray, IntArray]:
        """Slots to free and positions in the batch to admit, if ``keep [K, N]`` is to be stored.

        ``size`` is the number of stored examples.
        """
        freed = self.position[self.stored & ~keep]
        return freed, self.position[self.real & ~self.stored & keep] - size


def replace(
    store: MemoryStore, freed: IntArray, batch: dict[str, Tensor], admitted: IntArray
) -> None:
    """Give up the slots ``freed`` and store the rows ``admitted`` of a batch's columns."""
    reused = min(len(freed), len(admitted))
    store.write(torch.from_numpy(freed[:reused]), **_taken(batch, admitted[:reused]))
    if len(admitted) > reused:
        store.append(**_taken(batch, admitted[reused:]))
    elif len(freed) > reused:
        store.remove(torch.from_numpy(freed[reused:]))


def _taken(columns: dict[str, Tensor], rows: IntArray) -> dict[str, Tensor]:
    """Some rows of each column."""
    return {
        name: column.index_select(0, torch.from_numpy(rows).to(column.device))
        for name, column in columns.items()
    }


def pool_of(store: MemoryStore, y: Tensor, evicted: IntArray, unowned: int) -> IntArray:
    """Class columns of stored examples and then of a batch ``y``; ``unowned`` for ``evicted``."""
    pool: IntArray = torch.cat([store.y, y]).cpu().numpy()
    pool[evicted] = unowned
    return pool


def candidates_of(
    classes: Sequence[int], store: MemoryStore, y: Tensor, evicted: IntArray = NO_SLOTS
) -> CandidateIndex:
    """Candidates of ``classes`` among the stored examples and a batch of class columns ``y``.

    The stored examples ``evicted [G]`` are none.
    """
    pool = pool_of(store, y, evicted, unowned=max(classes) + 1)
    order = pool.argsort(kind="stable")
    count = np.bincount(pool, minlength=max(classes) + 1)
    own = np.array(classes)
    begin, size = (count.cumsum() - count)[own], count[own]  # in ``order``
    place = np.arange(size.max())
    real = place < size[:, None]
    position = order[np.where(real, begin[:, None] + place, 0)]
    return CandidateIndex(list(classes), position, real, real & (position < store.size))


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
