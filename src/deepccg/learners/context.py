r"""The context of a step: the stored examples M \ R that its classifier is conditioned on.

DeepCCG and ProtoCL have a classifier that is derived from memory and never learned. Each step
replays R, conditions on the rest of memory, and scores batch and R: nothing that is scored is among
what it is scored by. With ``posterior=sampled`` embeddings of stored examples are cached, and those
that a step does not embed again are estimated (``gaussian/embedding_drift.py``, with proofs). With
``leave-one-out`` R is what the estimates are made from, and each of R is scored by all but itself.
"""

from typing import Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor, nn

from deepccg.core import Diverged, State, has_finite_squares, make_generator
from deepccg.gaussian import MeansOfOthers
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
    draw_classes,
    draw_grouped,
    draw_uniform,
    keep_one_per_class,
    rank_within,
)

GENERATOR = "sample"  # name of the generator in the saved state, and its seed's purpose


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
        error: Where some of ``z`` are estimates: squared error of each class's mean, ``[C]``.
        missing: And the squared deviations from these that ``z`` lacks in sum.
        others: Where the replay is part of it: for each of R its class's mean without it.
    """

    slots: Tensor
    z: Tensor
    error: Tensor | None = None
    missing: Tensor | None = None
    others: MeansOfOthers | None = None

    def with_step(self, replay: Tensor, z: Tensor) -> StepEmbeddings:
        """Everything a step has embedded: the context, then R, and the batch.

        ``replay [R]`` are the slots of R, ``z [B + R, D]`` the embeddings of the batch and of R.
        """
        batch, replayed = torch.split(z, [len(z) - len(replay), len(replay)])
        if self.others is not None:  # R is part of the context
            replay, replayed = replay[:0], replayed[:0]
        return StepEmbeddings(torch.cat([self.z, replayed, batch]), torch.cat([self.slots, replay]))


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
    """An embedding of each stored example, a column of the memory.

    A step embeds ``sample`` random examples of each class that it compares, and moves the others
    along. What draws them is a generator of its own: replays and ties are then those of an exact
    posterior, draw for draw. Zeros where nothing was cached yet say nothing of where an example
    lies among its class, and so do the estimates that are made of them.
    """

    def __init__(
        self, memory: MemoryStore, dim: int, dtype: torch.dtype, sample: int, seed: int
    ) -> None:
        self.memory, self.dim, self.dtype, self.sample = memory, dim, dtype, sample
        self.generator = make_generator(seed, GENERATOR)

    def read(self, slots: Tensor) -> Tensor:
        """Cached embeddings ``[n, D]``."""
        if len(slots) == 0:  # an empty memory does not know its columns yet
            return torch.zeros(0, self.dim, dtype=self.dtype, device=slots.device)
        return self.memory[EMBEDDING][slots]

    def draw(self, y: Tensor) -> Tensor:
        """Which stored examples of classes ``y [n]`` to embed: ``sample`` of each, ``[n]``."""
        key = torch.rand(len(y), generator=self.generator).to(y.device)
        return rank_within(y, key) < self.sample

    def draw_few_classes(
        self, needed: Tensor, config: ContextConfig, generator: torch.Generator
    ) -> Tensor:
        """Slots, ascending: ``sample`` of each ``needed`` class and of random others, R in all.

        Where replays are compared with their own task, its classes come together.
        """
        y = self.memory.y
        group = self.memory.task if config.replay_mask == "task" else y
        columns = draw_classes(y, group, needed, config.replay // self.sample, generator)
        stored = torch.isin(y, columns).nonzero().flatten()
        return stored[self.draw(y[stored])]

    def update(self, z: StepEmbeddings) -> dict[str, Tensor]:
        """Cache what a step knows of memory; returns the column of the batch's examples."""
        if len(z.slots):
            self.memory[EMBEDDING][z.slots] = z.stored
        return {EMBEDDING: z.batch}

    def columns(self) -> dict[str, Column]:
        """Shape and type of what is stored with each example."""
        return {EMBEDDING: ((self.dim,), self.dtype)}

    def added_to(self, state: State) -> State:
        """Return a learner's state with a cache: of zeros, if it has none."""
        parts, tensors = dict(state.meta["parts"]), dict(state.tensors)
        if GENERATOR not in parts:  # saved by a learner without a cache
            parts[GENERATOR], tensors[f"{GENERATOR}.state"] = {}, self.generator.get_state()
        names = parts["memory"]["columns"]
        if EMBEDDING not in names:
            parts["memory"] = {**parts["memory"], "columns": [*names, EMBEDDING]}
            size = len(tensors["memory.y"])
            tensors[f"memory.{EMBEDDING}"] = torch.zeros(size, self.dim, dtype=self.dtype)
        return State(tensors, {**state.meta, "parts": parts})


def without_cache(state: State) -> State:
    """Return a learner's state without cached embeddings; they are computed when needed."""
    parts, tensors = dict(state.meta["parts"]), dict(state.tensors)
    names = [name for name in parts["memory"]["columns"] if name != EMBEDDING]
    parts["memory"] = {**parts["memory"], "columns": names}
    tensors.pop(f"memory.{EMBEDDING}", None)
    return State(tensors, {**state.meta, "parts": parts})
