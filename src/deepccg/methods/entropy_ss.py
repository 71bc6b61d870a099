"""ER with a memory of maximal entropy."""

from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import pad

from deepccg.core import Batch, MemoryUsage, State, StepInfo
from deepccg.learners.heads import HeadLearner, ReplayConfig
from deepccg.memory.policies import entropy_without_each, pairwise_distances
from deepccg.methods.er import replay_step
from deepccg.networks import as_float


class EntropySSConfig(ReplayConfig):
    """Fields of EntropySS."""

    space: Literal["pixels", "embeddings"] = Field(
        "pixels",
        description="where distances are taken: pixels; or embeddings, computed at each step",
    )


@dataclass(frozen=True)
class ClassDistances:
    """Distances ``[N, N]`` among the stored examples of a class, which are in ``slots [N]``."""

    slots: Tensor
    distances: Tensor

    def replaced(self, position: int, to_others: Tensor) -> "ClassDistances":
        """Another example in the slot at ``position``, with distances ``to_others [N]``."""
        row = to_others.clone()
        row[position] = 0.0
        distances = self.distances.clone()
        distances[position], distances[:, position] = row, row
        return ClassDistances(self.slots, distances)

    def without(self, position: int) -> "ClassDistances":
        """One example fewer."""
        rest = torch.arange(len(self.slots), device=self.slots.device) != position
        return ClassDistances(self.slots[rest], self.distances[rest][:, rest])


class EntropySS(HeadLearner[EntropySSConfig]):
    """EntropySS (reconstruction): ER whose memory maximises H(Y) + H(X | Y).

    While there is room every example is stored. Then each new one is added in turn, and one of the
    class with the most examples leaves (ties: the new one's class, else drawn), which keeps H(Y)
    largest: the one without which the class's nearest-neighbour estimate of H(X | Y = c),
    F mean_i log eps_i + const with eps_i the distance to the nearest other example of the class,
    is largest (ties: drawn). It may be the new one itself, so that inside a class a replacement
    never lowers the estimate.

    The distances within a class are kept from the first time it must give up an example; they are
    a function of the memory and not saved.

    Reference: Wiewel & Yang, "Entropy-based Sample Selection for Online Continual Learning", 2021,
    of which neither code nor text was at hand; the row "EntropySS" of Lee & Storkey, AISTATS 2024,
    Table 1.
    """

    Config = EntropySSConfig

    def build_state(self, seed: int) -> None:
        """Distances are kept from one example to the next."""
        super().build_state(seed)
        self._within: dict[int, ClassDistances] = {}
        self._embedded: dict[int, Tensor] = {}  # by slot, under the network of this step

    def learn(self, batch: Batch) -> StepInfo:
        """ER's step on batch and replay; then examples compete for the memory."""
        return replay_step(self, batch)

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Store what there is room for; the others compete with the stored, one by one."""
        room = min(len(y), self.memory.capacity - self.memory.size)
        self.memory.append(x[:room], y[:room], task_idx[:room])
        if self.config.space == "embeddings":  # the network has moved
            self._forget()
        if room == len(y) or self.memory.capacity == 0:
            return
        points = self.points(x[room:])
        for point, *example in zip(points, x[room:], y[room:], task_idx[room:], strict=True):
            self._compete(point, *example)

    def points(self, x: Tensor) -> Tensor:
        """What distances are taken between, ``[B, F]``."""
        if self.config.space == "embeddings":
            return self.embed(x)
        return as_float(x, self.dtype).flatten(1)

    def leaving(self, distances: Tensor) -> int:
        """Who of a class leaves: its removal leaves the largest estimate."""
        left = entropy_without_each(distances)
        return self._draw((left == left.max()).nonzero().flatten())

    def _compete(self, point: Tensor, x: Tensor, y: Tensor, task: Tensor) -> None:
        own = int(y)
        column = self._largest_class(own)
        if not bool((self.memory.y == column).any()):
            return  # one example of each class fills the memory, and the new one is of a further
        stored = self._distances_within(column)
        if column == own:
            to_stored = pairwise_distances(point[None], self._stored_points(stored.slots))[0]
            joined = pad(stored.distances, (0, 1, 0, 1))
            joined[-1, :-1] = joined[:-1, -1] = to_stored
            position = self.leaving(joined)
            if position == len(stored.slots):  # the new example itself
                return
            self._within[own] = stored.replaced(position, to_stored)
        else:
            position = self.leaving(stored.distances)
            self._within[column] = stored.without(position)
            self._within.pop(own, None)
        slot = stored.slots[position : position + 1]
        self.memory.write(slot, x[None], y[None], task[None])
        if self.config.space == "embeddings":
            self._embedded[int(slot)] = point

    def _largest_class(self, own: int) -> int:
        """The class with the most examples, counting a new one of class ``own``."""
        counts = torch.bincount(self.memory.y, minlength=len(self.class_table))
        counts[own] += 1
        largest = counts == counts.max()
        return own if bool(largest[own]) else self._draw(largest.nonzero().flatten())

    def _distances_within(self, column: int) -> ClassDistances:
        if column not in self._within:
            slots = (self.memory.y == column).nonzero().flatten()
            points = self._stored_points(slots)
            self._within[column] = ClassDistances(slots, pairwise_distances(points, points))
        return self._within[column]

    def _stored_points(self, slots: Tensor) -> Tensor:
        if self.config.space == "pixels":
            return self.points(self.memory.x[slots])
        missing = [slot for slot in slots.tolist() if slot not in self._embedded]
        if missing:
            self._embedded |= zip(
                missing, self.embed_stored(slots.new_tensor(missing)), strict=True
            )
        return torch.stack([self._embedded[slot] for slot in slots.tolist()])

    def _forget(self) -> None:
        self._within.clear()
        self._embedded.clear()

    def _draw(self, candidates: Tensor) -> int:
        drawn = torch.randint(len(candidates), (1,), generator=self.generator)
        return int(candidates[drawn.to(candidates.device)])

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``; distances are computed again."""
        super().load_state_dict(state)
        self._forget()

    def memory_usage(self) -> MemoryUsage:
        """The memory, and what its classes keep once one had to give up an example."""
        held = super().memory_usage()
        full = self.memory.size == self.memory.capacity
        pairs = int(torch.bincount(self.memory.y).square().sum()) if full else 0
        kept = {**held.bytes, "distances": pairs * self.dtype.itemsize}
        if self.config.space == "embeddings":
            kept["embeddings"] = full * self.memory.size * self.dim * self.dtype.itemsize
        return MemoryUsage(held.examples, kept)
