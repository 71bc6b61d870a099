"""DeepCCG's memory: every class fills its quota with examples that stand for all of it."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat
from torch import Tensor

from deepccg.core import Config
from deepccg.gaussian import (
    Candidates,
    LassoConfig,
    greedy_selection,
    lasso_selection,
    swap_selection,
    target_mean,
)
from deepccg.memory import (
    CandidateIndex,
    MemoryStore,
    balanced_random,
    candidates_of,
    class_balanced_reservoir,
    quotas_by_arrival,
)
from deepccg.methods.outputs import Outputs


class SelectionConfig(Config):
    """What is stored of each class."""

    selector: Literal["lasso", "greedy", "swap", "reservoir", "random"] = Field(
        "greedy",
        description="what is stored: lasso as published, greedy removal, greedy with swaps, "
        "a reservoir per class, or a random subset per class",
    )
    target: Literal["printed", "evidence"] = Field(
        "evidence",
        description="mean to keep: of memory and batch (printed), or weighted by the number of "
        "examples each stands for (evidence)",
    )
    quota: Literal["fixed", "growing"] = Field(
        "fixed", description="memory shared among all known classes, or among those seen so far"
    )
    lasso_penalty: NonNegativeFloat = Field(1e-3, description="lasso: lambda of Eq. 12")
    lasso_steps: NonNegativeInt = Field(100, description="lasso: gradient steps")
    lasso_lr: PositiveFloat = Field(0.1, description="lasso: step size")
    lasso_start: Literal["random", "memory", "constant"] = Field(
        "random", description="lasso: initial weights (constant ones never move)"
    )
    lasso_constraint: Literal["clip", "sigmoid"] = Field(
        "clip", description="lasso: how weights are kept between 0 and 1"
    )
    lasso_normalise: bool = Field(
        True, description="lasso: divide embeddings by their spread, so that one step size fits"
    )

    @property
    def lasso(self) -> LassoConfig:
        """The lasso's fields together."""
        return LassoConfig(
            penalty=self.lasso_penalty,
            steps=self.lasso_steps,
            lr=self.lasso_lr,
            start=self.lasso_start,
            constraint=self.lasso_constraint,
            normalise=self.lasso_normalise,
        )


class Selection:
    """Keeps each class within its quota, by the rule that ``config`` names (Eqs. 10, 12).

    It reads and rewrites a learner's memory and has no state of its own.
    """

    def __init__(
        self,
        config: SelectionConfig,
        memory: MemoryStore,
        outputs: Outputs,
        generator: torch.Generator,
    ) -> None:
        self.config, self.memory = config, memory
        self.outputs, self.generator = outputs, generator

    def quotas(self) -> Tensor:
        """How many examples each class may store, ``[C]``; the first seen get the remainder."""
        arrival, columns = self.outputs.arrival, len(self.outputs)
        sharing = columns if self.config.quota == "fixed" else len(arrival)
        return quotas_by_arrival(self.memory.capacity, arrival, columns, sharing)

    def over_quota(self) -> list[int]:
        """Classes that must give examples up because further classes arrived."""
        stored = torch.bincount(self.memory.y, minlength=len(self.outputs)).cpu()
        return (stored > self.quotas()).nonzero().flatten().tolist()

    def reselect(
        self,
        x: Tensor,
        y: Tensor,
        rows: Tensor,
        embeddings: Callable[[CandidateIndex], Tensor],
        **extras: Tensor,
    ) -> None:
        """Fill each class's quota with the best of what is stored and what is new (Eq. 10).

        Args:
            x: The batch ``[B, ...]``.
            y: Its class columns ``[B]``, already counted as seen.
            rows: Its task rows ``[B]``.
            embeddings: Gives those of the candidates, ``[K, N, D]``, whatever on padding. Not
                asked where every candidate is kept.
            **extras: What the memory holds of each example besides, ``[B, ...]``.
        """
        classes = sorted({*y.tolist(), *self.over_quota()})
        index = candidates_of(classes, self.memory, y)
        quota = self.quotas()[classes].to(y.device)
        keep = index.real
        if bool((index.real.sum(dim=1) > quota).any()):
            new = torch.bincount(y, minlength=len(self.outputs))
            seen = (self.outputs.seen.to(y.device) - new)[classes]
            z = embeddings(index)
            target = self._targets(z, index, seen.tolist())
            keep = self.select(Candidates(z, index.real, index.stored, target, quota, seen))
        index.apply(keep, self.memory, x, y, rows, **extras)

    def select(self, candidates: Candidates) -> Tensor:
        """Which candidates to keep, ``[K, N]``."""
        if self.config.selector == "lasso":
            return lasso_selection(candidates, self.config.lasso, self.generator)
        return _SELECTORS[self.config.selector](candidates, self.generator)

    def _targets(self, z: Tensor, index: CandidateIndex, seen: list[int]) -> Tensor:
        """The mean each class's memory should keep, ``[K, D]``."""
        evidence = self.config.target == "evidence"
        return torch.stack(
            [
                target_mean(
                    z[k, index.stored[k]],
                    z[k, index.real[k] & ~index.stored[k]],
                    seen[k] if evidence else None,
                )
                for k in range(len(z))
            ]
        )


_SELECTORS = {
    "greedy": greedy_selection,
    "swap": swap_selection,
    "reservoir": class_balanced_reservoir,
    "random": balanced_random,
}


class Embedded(NamedTuple):
    """Embeddings of some stored examples, and of a batch.

    Args:
        slots: Which stored examples, ``[n]``.
        stored: Their embeddings ``[n, D]``.
        batch: The batch's, ``[B, D]``.
        known: Which of ``stored`` come from the present network; the others are estimates, ``[n]``.
    """

    slots: Tensor
    stored: Tensor
    batch: Tensor
    known: Tensor

    def at(self, position: Tensor, size: int) -> Tensor:
        """Those at ``position`` among ``size`` stored examples and then the batch, ``[..., D]``."""
        known = torch.cat([self.stored, self.batch])
        row = torch.zeros(size + len(self.batch), dtype=torch.int64, device=known.device)
        order = torch.arange(len(known), device=known.device)
        row[self.slots], row[size:] = order[: len(self.slots)], order[len(self.slots) :]
        return known[row[position]]


def embedded_now(
    index: CandidateIndex, memory: MemoryStore, x: Tensor, embed: Callable[[Tensor], Tensor]
) -> Tensor:
    """Embeddings for ``Selection.reselect``, made by embedding the candidates, ``[K, N, D]``."""
    slots = index.position[index.stored]
    batch = embed(x)
    stored = embed(memory.x[slots]) if len(slots) else batch[:0]
    known = torch.ones_like(slots, dtype=torch.bool)
    return Embedded(slots, stored, batch, known).at(index.position, memory.size)
