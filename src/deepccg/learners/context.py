r"""The context of a step: the stored examples M \ R that its classifier is conditioned on.

DeepCCG and ProtoCL have a classifier that is derived from memory and never learned. Each step
replays R, conditions on the rest of memory, and scores batch and R: nothing that is scored is among
what it is scored by. With ``posterior=lazy`` embeddings of stored examples are cached, and those
that a step does not embed again are estimated (``gaussian/embedding_drift.py``, with proofs).
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from deepccg.core import Diverged, State, has_finite_squares, make_generator
from deepccg.learners.base import NetworkLearner
from deepccg.learners.class_table import ReplayMask, TrainMask
from deepccg.learners.memory_selection import StepEmbeddings
from deepccg.learners.optimiser import ReplayReduction
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.state import Column
from deepccg.memory import (
    EMBEDDING,
    MemoryStore,
    draw_balanced,
    draw_grouped,
    draw_uniform,
    keep_one_per_class,
    rank_within,
)

AGE = "cached_age"  # column of the memory
GENERATOR = "refresh"  # name of the generator in the saved state, and its seed's purpose
STALE = 2**62  # the age of an example without a cached embedding: beyond every bound


class ContextConfig(RecipeConfig):
    """Fields of every method that conditions on memory."""

    lr: PositiveFloat = Field(0.1, description="step size of the embedding")
    replay: NonNegativeInt = Field(10, description="stored examples replayed per step, r")
    replay_draw: Literal["half", "literal"] = Field(
        "half",
        description="half: at most half of memory, and a class is never drawn entirely; "
        "literal: r examples whatever is left to condition on",
    )
    replay_sampling: Literal["uniform", "balanced"] = Field(
        "uniform", description="every stored example, or every stored class, equally likely"
    )
    reduction: ReplayReduction = Field(
        "mean",
        description="over the terms of a step: mean, or sum as printed; means: mean over the "
        "batch's and mean over the replay's, added",
    )
    train_mask: TrainMask = "task"
    replay_mask: ReplayMask = "seen"
    normalise: bool = Field(False, description="embeddings of unit length before scaling")
    mean_gradient: bool = Field(False, description="gradient also through the memory's means")


ConfigT = TypeVar("ConfigT", bound=ContextConfig)


class LogParameter(nn.Module):
    """A positive quantity that the loss learns, by its logarithm ``log``."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.log = nn.Parameter(start.log())


class Context(NamedTuple):
    """The stored examples that a step is conditioned on.

    Args:
        slots: Where they are in memory, ``[n]``.
        z: Their embeddings ``[n, D]``, with gradient only under ``mean_gradient``.
        known: Which come from the present network; the others are estimates, ``[n]``. By default
            all do.
        error: Squared error of each class's mean because of the estimates, ``[C]``.
    """

    slots: Tensor
    z: Tensor
    known: Tensor | None = None
    error: Tensor | None = None

    def with_step(self, replay: Tensor, z: Tensor) -> StepEmbeddings:
        """Everything a step has embedded: the context, then R, and the batch.

        ``replay [R]`` are the slots of R, ``z [B + R, D]`` the embeddings of the batch and of R.
        """
        batch, replayed = torch.split(z, [len(z) - len(replay), len(replay)])
        known = self.known
        if known is not None:
            known = torch.cat([known, torch.ones_like(replay, dtype=torch.bool)])
        return StepEmbeddings(
            torch.cat([self.z, replayed, batch]), torch.cat([self.slots, replay]), known
        )


class Replay(NamedTuple):
    """Slots of R, and how many that were drawn stay in the context instead."""

    slots: Tensor
    returned: int


def sample_replay(
    memory: MemoryStore, config: ContextConfig, generator: torch.Generator, tasks: int | None = None
) -> Replay:
    """Draw R: at most half of memory, and of each class one example less than it has.

    ``replay_draw=literal`` lifts both limits. R is drawn from about ``tasks`` random tasks; by
    default from all.
    """
    literal = config.replay_draw == "literal"
    size = config.replay if literal else min(config.replay, memory.size // 2)
    if tasks is not None:
        drawn = draw_grouped(memory.task, size, tasks, generator)
    else:
        draw = draw_uniform if config.replay_sampling == "uniform" else draw_balanced
        drawn = draw(memory.y, size, generator)
    if literal:
        return Replay(drawn, 0)
    slots = keep_one_per_class(drawn, memory.y, memory.counts)
    return Replay(slots, len(drawn) - len(slots))


def context_slots(
    memory: MemoryStore, mask: Tensor, replay: Tensor, reselected: Tensor | None = None
) -> Tensor:
    r"""Slots of M \ R whose class some mask ``[B + R, C]`` allows or that is ``reselected``."""
    needed = mask.any(dim=0).cpu().numpy()
    if reselected is not None:
        needed[reselected.cpu().numpy()] = True
    wanted = needed[memory.y.cpu().numpy()]
    wanted[replay.cpu().numpy()] = False
    return torch.from_numpy(np.flatnonzero(wanted)).to(mask.device)


def embed_step(
    learner: NetworkLearner[ConfigT], x: Tensor, replay: Tensor, slots: Tensor
) -> tuple[Tensor, Tensor]:
    """Embed batch and replay with gradient, ``[B + R, D]``, and stored ``slots``, ``[n, D]``.

    The stored ones have a gradient only under ``mean_gradient``.
    """
    if learner.config.mean_gradient and len(slots):
        both = shaped(learner, learner.embed_with_replay(x, torch.cat([replay, slots])))
        z, z_stored = both[: len(x) + len(replay)], both[len(x) + len(replay) :]
    else:
        z_stored = embed_stored(learner, slots)
        z = shaped(learner, learner.embed_with_replay(x, replay))
    if not has_finite_squares(z):
        raise Diverged(
            f"embeddings are too large at step {learner.steps + 1}: scale the inputs, "
            f"or try a smaller lr"
        )
    return z, z_stored


def embed_stored(learner: NetworkLearner[ConfigT], slots: Tensor) -> Tensor:
    """Embeddings of stored examples under the present network, without gradient, ``[n, D]``."""
    if learner.augments and len(slots):
        stored = learner.augmented(learner.memory.x.index_select(0, slots))
        return shaped(learner, learner.embed(stored))
    return shaped(learner, learner.embed_stored(slots))


def shaped(learner: NetworkLearner[ConfigT], z: Tensor) -> Tensor:
    """Embeddings as the classifier sees them: of unit length under ``normalise``, ``[B, D]``."""
    return F.normalize(z, dim=1) if learner.config.normalise else z


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


def without_cache(state: State, columns: Sequence[str] = (EMBEDDING, AGE)) -> State:
    """Return a learner's state without these columns; embeddings are computed when needed."""
    parts = dict(state.meta["parts"])
    names = [name for name in parts["memory"]["columns"] if name not in columns]
    parts["memory"] = {**parts["memory"], "columns": names}
    dropped = {f"memory.{name}" for name in columns}
    tensors = {name: value for name, value in state.tensors.items() if name not in dropped}
    return State(tensors, {**state.meta, "parts": parts})
