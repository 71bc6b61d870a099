"""Cached embeddings of what is stored: which to embed anew, and how they are saved.

The estimates themselves, and what is proved of them: ``deepccg.gaussian.embedding_drift``.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from deepccg.core import State
from deepccg.learners.state import Column
from deepccg.memory import MemoryStore, rank_within

EMBEDDING, AGE = "cached_embedding", "cached_age"  # columns of the memory
DRAWS = "refresh"  # the part that draws whom to embed anew
NEVER = 2**62  # the age of an example without a cached embedding: beyond every bound


class Refresh(NamedTuple):
    """Which stored examples a step embeds anew.

    Args:
        known: All of them, ``[n]``.
        sampled: Those drawn at random; the others were due, ``[n]``.
    """

    known: Tensor
    sampled: Tensor


def draw_refresh(y: Tensor, due: Tensor, sample: int, generator: torch.Generator) -> Refresh:
    """Every example that is due, and ``sample`` others of each class at random.

    Random draws make ages differ, so where a bound K on age makes examples due, those of a class
    come up one by one: about m p / (1 - (1-p)^(K+1)) of m are embedded per use, p = sample/m.

    Args:
        y: Class columns ``[n]``.
        due: Which must be embedded anew, ``[n]``.
        sample: How many others to draw of each class.
        generator: What draws.
    """
    # Above all others: what is due is embedded anyway and takes no other's place.
    key = torch.rand(len(y), generator=generator).to(y.device) + due
    sampled = (rank_within(y, key) < sample) & ~due
    return Refresh(sampled | due, sampled)


def cached(
    memory: MemoryStore, slots: Tensor, dim: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cached embeddings ``[n, D]`` and their ages ``[n]``."""
    if len(slots) == 0:  # an empty memory does not know its columns yet
        return torch.zeros(0, dim, dtype=dtype, device=slots.device), slots
    return memory[EMBEDDING][slots], memory[AGE][slots]


def keep(memory: MemoryStore, slots: Tensor, z: Tensor, known: Tensor | None) -> None:
    """Let estimates and new embeddings take the place of what is cached."""
    if len(slots):
        memory[EMBEDDING][slots] = z
        older = memory[AGE][slots] + 1
        memory[AGE][slots] = torch.zeros_like(older) if known is None else older.where(~known, 0)


def fresh_columns(z: Tensor) -> dict[str, Tensor]:
    """What is stored with new examples of embeddings ``z [B, D]``."""
    return {EMBEDDING: z, AGE: torch.zeros(len(z), dtype=torch.int64, device=z.device)}


def columns(dim: int, dtype: torch.dtype) -> dict[str, Column]:
    """Shape and type of what is stored with each example."""
    return {EMBEDDING: ((dim,), dtype), AGE: ((), torch.int64)}


def without_cache(state: State) -> State:
    """A state that says nothing of embeddings; they are computed when they are first needed."""
    parts = dict(state.meta["parts"])
    names = [name for name in parts["memory"]["columns"] if name not in (EMBEDDING, AGE)]
    parts["memory"] = {**parts["memory"], "columns": names}
    dropped = {f"memory.{EMBEDDING}", f"memory.{AGE}"}
    tensors = {name: value for name, value in state.tensors.items() if name not in dropped}
    return State(tensors, {**state.meta, "parts": parts})


def with_cache(state: State, dim: int, dtype: torch.dtype, generator: torch.Generator) -> State:
    """A state of either kind with a cache: an empty one, if it has none."""
    parts, tensors = dict(state.meta["parts"]), dict(state.tensors)
    if DRAWS not in parts:  # saved by a learner without a cache
        parts[DRAWS], tensors[f"{DRAWS}.state"] = {}, generator.get_state()
    names = parts["memory"]["columns"]
    if not {EMBEDDING, AGE} & set(names):
        parts["memory"] = {**parts["memory"], "columns": [*names, EMBEDDING, AGE]}
        size = len(tensors["memory.y"])
        tensors[f"memory.{EMBEDDING}"] = torch.zeros(size, dim, dtype=dtype)
        tensors[f"memory.{AGE}"] = torch.full((size,), NEVER)
    return State(tensors, {**state.meta, "parts": parts})
