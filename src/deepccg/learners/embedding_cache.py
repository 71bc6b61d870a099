"""Cached embeddings of stored examples: which to embed again, and how the cache is saved.

The estimates themselves, and what is proved of them: ``deepccg.gaussian.embedding_drift``.
"""

import torch
from torch import Tensor

from deepccg.core import State, make_generator
from deepccg.learners.memory_selection import StepEmbeddings
from deepccg.learners.state import Column
from deepccg.memory import MemoryStore, rank_within

EMBEDDING, AGE = "cached_embedding", "cached_age"  # columns of the memory
GENERATOR = "refresh"  # name of the generator in the saved state, and its seed's purpose
STALE = 2**62  # the age of an example without a cached embedding: beyond every bound


class EmbeddingCache:
    """An embedding of each stored example and how often in a row it was estimated.

    Both are columns of the memory. What draws the examples to embed again is a generator of its
    own: replays and ties are then those of an exact posterior, draw for draw. A step embeds
    ``refresh`` random examples of each class again, and each at the latest after ``max_age``
    estimates.
    """

    def __init__(
        self,
        memory: MemoryStore,
        dim: int,
        dtype: torch.dtype,
        refresh: int,
        max_age: int,
        seed: int,
    ) -> None:
        self.memory, self.dim, self.dtype = memory, dim, dtype
        self.refresh, self.max_age = refresh, max_age
        self.generator = make_generator(seed, GENERATOR)

    def read(self, slots: Tensor) -> tuple[Tensor, Tensor]:
        """Cached embeddings ``[n, D]`` and their ages ``[n]``."""
        if len(slots) == 0:  # an empty memory does not know its columns yet
            return torch.zeros(0, self.dim, dtype=self.dtype, device=slots.device), slots
        return self.memory[EMBEDDING][slots], self.memory[AGE][slots]

    def draw(self, y: Tensor, age: Tensor, reselected: Tensor) -> tuple[Tensor, Tensor]:
        """Draw which stored examples of classes ``y [n]`` and ages ``[n]`` to embed again.

        All of classes that are ``reselected``: a selection by estimates would look for the errors
        that suit it. Returns what ``draw_refresh`` does.
        """
        due = (age >= self.max_age) | torch.isin(y, reselected)
        return draw_refresh(y, due, self.refresh, self.generator)

    def update(self, z: StepEmbeddings) -> dict[str, Tensor]:
        """Cache what a step knows of memory; returns the columns of the batch's examples."""
        if len(z.slots):
            older = self.memory[AGE][z.slots] + 1
            self.memory[EMBEDDING][z.slots] = z.stored
            self.memory[AGE][z.slots] = (
                torch.zeros_like(older) if z.known is None else older.where(~z.known, 0)
            )
        age = torch.zeros(len(z.batch), dtype=torch.int64, device=z.batch.device)
        return {EMBEDDING: z.batch, AGE: age}

    def columns(self) -> dict[str, Column]:
        """Shape and type of what is stored with each example."""
        return {EMBEDDING: ((self.dim,), self.dtype), AGE: ((), torch.int64)}

    def added_to(self, state: State) -> State:
        """Return a learner's state with a cache: an empty one, if it has none."""
        parts, tensors = dict(state.meta["parts"]), dict(state.tensors)
        if GENERATOR not in parts:  # saved by a learner without a cache
            parts[GENERATOR], tensors[f"{GENERATOR}.state"] = {}, self.generator.get_state()
        names = parts["memory"]["columns"]
        if not {EMBEDDING, AGE} & set(names):
            parts["memory"] = {**parts["memory"], "columns": [*names, EMBEDDING, AGE]}
            size = len(tensors["memory.y"])
            tensors[f"memory.{EMBEDDING}"] = torch.zeros(size, self.dim, dtype=self.dtype)
            tensors[f"memory.{AGE}"] = torch.full((size,), STALE)
        return State(tensors, {**state.meta, "parts": parts})


def draw_refresh(
    y: Tensor, due: Tensor, sample: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Draw every example that is due, and ``sample`` others of each class at random.

    Random draws make ages differ, so where a bound K on age makes examples due, those of a class
    come up one by one: about m p / (1 - (1-p)^(K+1)) of m are embedded per use, p = sample/m.

    Args:
        y: Class columns ``[n]``.
        due: Which must be embedded again, ``[n]``.
        sample: How many others to draw of each class.
        generator: What draws.

    Returns:
        Which are embedded again, ``[n]``, and which of these were drawn at random, ``[n]``.
    """
    # Above all others: what is due is embedded anyway and takes no other's place.
    key = torch.rand(len(y), generator=generator).to(y.device) + due
    sampled = (rank_within(y, key) < sample) & ~due
    return sampled | due, sampled


def without_cache(state: State) -> State:
    """Return a learner's state without cached embeddings; they are computed when needed."""
    parts = dict(state.meta["parts"])
    names = [name for name in parts["memory"]["columns"] if name not in (EMBEDDING, AGE)]
    parts["memory"] = {**parts["memory"], "columns": names}
    dropped = {f"memory.{EMBEDDING}", f"memory.{AGE}"}
    tensors = {name: value for name, value in state.tensors.items() if name not in dropped}
    return State(tensors, {**state.meta, "parts": parts})
