"""Stored and new examples of a class compete for its quota; the store is rewritten in place."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from deepccg.gaussian.selection import BoolArray, IntArray
from deepccg.memory.buffer import MemoryStore

NOBODY: IntArray = np.empty(0, dtype=np.int64)


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

    def apply(
        self,
        keep: Tensor,
        store: MemoryStore,
        x: Tensor,
        y: Tensor,
        task: Tensor,
        gone: IntArray = NOBODY,
        **extras: Tensor,
    ) -> None:
        """Make the store hold what ``keep [K, N]`` says of these classes; others stay.

        Args:
            keep: Which candidates are to be in the store, ``[K, N]``.
            store: Where they are, or go to.
            x: The batch ``[B, ...]``.
            y: Its class columns ``[B]``.
            task: Its task rows ``[B]``.
            gone: Stored examples that are no candidates and leave as well, ``[G]``.
            **extras: Its further columns ``[B, ...]``.
        """
        batch = {"x": x, "y": y, "task": task, **extras}
        kept = keep.cpu().numpy()
        freed = np.concatenate([gone, self.position[self.stored & ~kept]])
        entering = self.position[self.real & ~self.stored & kept] - store.size
        replace(store, freed, batch, entering)


def replace(
    store: MemoryStore, freed: IntArray, batch: dict[str, Tensor], entering: IntArray
) -> None:
    """Give up the slots ``freed`` and store the rows ``entering`` of a batch's columns."""
    reused = min(len(freed), len(entering))
    store.write(torch.from_numpy(freed[:reused]), **_taken(batch, entering[:reused]))
    if len(entering) > reused:
        store.append(**_taken(batch, entering[reused:]))
    elif len(freed) > reused:
        store.remove(torch.from_numpy(freed[reused:]))


def _taken(columns: dict[str, Tensor], rows: IntArray) -> dict[str, Tensor]:
    """Some rows of each column."""
    return {
        name: column.index_select(0, torch.from_numpy(rows).to(column.device))
        for name, column in columns.items()
    }


def pool_of(store: MemoryStore, y: Tensor, gone: IntArray, nobodys: int) -> IntArray:
    """Class columns of the stored examples and then of a batch ``y``; ``nobodys`` for ``gone``."""
    pool: IntArray = torch.cat([store.y, y]).cpu().numpy()
    pool[gone] = nobodys
    return pool


def candidates_of(
    classes: Sequence[int], store: MemoryStore, y: Tensor, gone: IntArray = NOBODY
) -> CandidateIndex:
    """Candidates of ``classes`` among the stored examples and a batch of class columns ``y``.

    The stored examples ``gone [G]`` are none.
    """
    pool = pool_of(store, y, gone, nobodys=max(classes) + 1)
    order = pool.argsort(kind="stable")
    count = np.bincount(pool, minlength=max(classes) + 1)
    own = np.array(classes)
    begin, size = (count.cumsum() - count)[own], count[own]  # in ``order``
    place = np.arange(size.max())
    real = place < size[:, None]
    position = order[np.where(real, begin[:, None] + place, 0)]
    return CandidateIndex(list(classes), position, real, real & (position < store.size))
