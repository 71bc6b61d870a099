"""Selection of the memory: each class fills its quota with examples that represent all of it."""

from collections import Counter
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat
from torch import Tensor

from deepccg.core import Config
from deepccg.gaussian import (
    Candidates,
    LassoConfig,
    greedy_selection,
    kernels,
    lasso_selection,
    swap_selection,
    target_weights,
)
from deepccg.gaussian.selection import FloatArray, IntArray
from deepccg.learners.base import NetworkLearner
from deepccg.learners.class_table import ClassTable
from deepccg.learners.error_rates import ClassErrorRates
from deepccg.memory import (
    NO_SLOTS,
    CandidateIndex,
    MemoryStore,
    balanced_random,
    candidates_of,
    class_balanced_reservoir,
    pool_of,
    quotas_by_arrival,
    replace,
)

Quota = Annotated[
    Literal["fixed", "growing"],
    Field(description="memory shared among all known classes, or among those seen so far"),
]


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
    quota: Quota = "fixed"
    renewal: Annotated[float, Field(ge=0, le=1)] | Literal["errors"] = Field(
        0.0,
        description="lasso, greedy, swap: probability that a new example displaces any stored one "
        "of its class instead of the one the selection picks, so that a class that changes is "
        "followed; errors: as often as its new examples were lately taken for other classes",
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
        own = {k.removeprefix("lasso_"): v for k, v in self if k.startswith("lasso_")}
        return LassoConfig(**own)


class SelectionRequest(NamedTuple):
    """Classes whose memory is reselected.

    Args:
        classes: K class columns, in order.
        quota: How many examples each may store, ``[K]``.
        before: How many examples of each came before this batch, ``[K]``.
        renewal: How likely one that must leave is any of the stored ones, ``[K]``.
        displaced: How many must leave because of this batch, ``[K]``.
        must_choose: Whether there are more candidates than places in any of them.
    """

    classes: list[int]
    quota: IntArray
    before: IntArray
    renewal: FloatArray
    displaced: IntArray
    must_choose: bool


class StepEmbeddings(NamedTuple):
    """Embeddings of a batch and of some stored examples.

    Args:
        z: Those of examples ``slots`` in memory and then of the batch, ``[n + B, D]``.
        slots: Which stored examples, ``[n]``.
    """

    z: Tensor
    slots: Tensor

    @property
    def stored(self) -> Tensor:
        """Those of the stored examples, ``[n, D]``."""
        return self.z[: len(self.slots)]

    @property
    def batch(self) -> Tensor:
        """Those of the batch, ``[B, D]``."""
        return self.z[len(self.slots) :]

    def at(self, position: IntArray, size: int) -> Tensor:
        """Those at ``position`` among ``size`` stored examples and then the batch, ``[..., D]``."""
        taken = torch.from_numpy(self.rows(size)[position].ravel()).to(self.z.device)
        return self.z.index_select(0, taken).view(*position.shape, -1)

    def rows(self, size: int) -> IntArray:
        """The row of each of ``size`` stored examples and then the batch; 0 if there is none."""
        n = len(self.slots)
        row = np.zeros(size + len(self.z) - n, dtype=np.int64)
        row[self.slots.cpu().numpy()] = np.arange(n)
        row[size:] = np.arange(n, len(self.z))
        return row


_SELECTORS = {
    "greedy": greedy_selection,
    "swap": swap_selection,
    "reservoir": class_balanced_reservoir,
    "random": balanced_random,
}


class Selection:
    """Keeps each class within its quota, by the rule that ``config`` names (Eqs. 10, 12).

    It reads and rewrites a learner's memory and has no state of its own. With ``renewal=errors``
    the learner updates ``error_rates`` with every batch before it is reselected.
    """

    def __init__(
        self,
        config: SelectionConfig,
        memory: MemoryStore,
        class_table: ClassTable,
        generator: torch.Generator,
        error_rates: ClassErrorRates | None = None,
    ) -> None:
        self.config, self.memory = config, memory
        self.class_table, self.generator = class_table, generator
        self.error_rates = error_rates or ClassErrorRates()

    def quotas(self) -> list[int]:
        """How many examples each class may store; the first seen get the remainder."""
        arrival, columns = self.class_table.arrival, len(self.class_table)
        sharing = columns if self.config.quota == "fixed" else len(arrival)
        return quotas_by_arrival(self.memory.capacity, arrival, columns, sharing)

    def over_quota(self) -> list[int]:
        """Classes that must give examples up because further classes arrived."""
        return self._over(self.quotas())

    def _over(self, quotas: list[int]) -> list[int]:
        return [column for column, count in self.memory.counts.items() if count > quotas[column]]

    def reselect(
        self,
        x: Tensor,
        y: Tensor,
        task_idx: Tensor,
        embeddings: Callable[[CandidateIndex], Tensor],
        natively: StepEmbeddings | None = None,
        **extras: Tensor,
    ) -> None:
        """Fill each class's quota with the best of what is stored and what is new (Eq. 10).

        Args:
            x: The batch ``[B, ...]``.
            y: Its class columns ``[B]``, already counted as seen.
            task_idx: Its task indices ``[B]``.
            embeddings: Returns those of the candidates, ``[K, N, D]``, any numbers on padding. Not
                called where every candidate is kept.
            natively: The embeddings themselves, if a compiled kernel is to select greedily.
            **extras: Further columns of the memory, ``[B, ...]``.
        """
        request = self._request(y)
        evicted = self._random_evictions(request)
        if natively is not None and request.must_choose:
            freed, admitted = self._exchange(y, natively, request, evicted)
        else:
            index = candidates_of(request.classes, self.memory, y, evicted)
            keep = index.real
            if request.must_choose:
                candidates = self._candidates(embeddings(index), index, request)
                keep = self.select(candidates).cpu().numpy()
            freed, admitted = index.changes(keep, self.memory.size)
        batch = {"x": x, "y": y, "task": task_idx, **extras}
        replace(self.memory, np.concatenate([evicted, freed]), batch, admitted)

    def _random_evictions(self, request: SelectionRequest) -> IntArray:
        """Slots of stored examples that leave whatever the selection would keep (``renewal``).

        Without, a memory whose mean stands for more and more examples soon takes no new one: its
        own mean is the one to keep. That serves while the class stays what it was.
        """
        if not (request.displaced * request.renewal).any():
            return NO_SLOTS
        displaced = request.displaced.sum()
        draws = torch.rand(displaced + self.memory.size, generator=self.generator).numpy()
        evicts = draws[:displaced] < np.repeat(request.renewal, request.displaced)
        if not evicts.any():
            return NO_SLOTS
        number = Counter(np.repeat(request.classes, request.displaced)[evicts].tolist())
        y, order = self.memory.y.cpu().numpy(), draws[displaced:].argsort()
        evicted = [order[y[order] == column][:count] for column, count in number.items()]
        return np.concatenate(evicted)

    def _renewal(self, classes: list[int]) -> FloatArray:
        """The probability of each class ``[K]``; selectors at random take new examples anyway."""
        rate = self.config.renewal if self.config.selector in ("lasso", "greedy", "swap") else 0.0
        if rate == "errors":
            return self.error_rates.of(classes)
        return np.full(len(classes), float(rate))

    def _exchange(
        self, y: Tensor, z: StepEmbeddings, request: SelectionRequest, evicted: IntArray
    ) -> tuple[IntArray, IntArray]:
        """Greedy removal for all classes, the means to keep included, in one native call."""
        size, before = self.memory.size, request.before.astype(np.float64)
        pool = pool_of(self.memory, y, evicted, unowned=len(self.class_table))
        seen = before if self.config.target == "evidence" else np.full_like(before, -1.0)
        return kernels.greedy_exchange(
            z.z, z.rows(size), pool, size, request.classes, request.quota, seen, self.generator
        )

    def _request(self, y: Tensor) -> SelectionRequest:
        """Which classes compete for how many places when a batch of class columns ``y`` comes."""
        new, quotas = Counter(y.tolist()), self.quotas()
        classes = sorted({*new, *self._over(quotas)})
        stored, seen = self.memory.counts, self.class_table.seen.tolist()
        quota = np.array([quotas[column] for column in classes])
        coming = np.array([new[column] for column in classes])
        surplus = np.array([stored[column] for column in classes]) + coming - quota
        return SelectionRequest(
            classes,
            quota=quota,
            before=np.array([seen[column] for column in classes]) - coming,
            renewal=self._renewal(classes),
            displaced=np.minimum(surplus, coming).clip(min=0),
            must_choose=bool((surplus > 0).any()),
        )

    def select(self, candidates: Candidates) -> Tensor:
        """Which candidates to keep, ``[K, N]``."""
        if self.config.selector == "lasso":
            return lasso_selection(candidates, self.config.lasso, self.generator)
        return _SELECTORS[self.config.selector](candidates, self.generator)

    def _candidates(
        self, z: Tensor, index: CandidateIndex, request: SelectionRequest
    ) -> Candidates:
        """What ``select`` chooses from: embeddings ``z [K, N, D]``, and the means to keep."""
        weighed = request.before if self.config.target == "evidence" else None
        weight = torch.from_numpy(target_weights(index.real, index.stored, weighed))
        target = torch.bmm(weight.to(z)[:, None], z).squeeze(1)
        real, stored, own_quota, seen = (
            torch.from_numpy(part).to(z.device)
            for part in (index.real, index.stored, request.quota, request.before)
        )
        return Candidates(z, real, stored, target, own_quota, seen)


def embed_candidates(
    learner: NetworkLearner[Any],
    index: CandidateIndex,
    x: Tensor,
    shape: Callable[[Tensor], Tensor] = lambda z: z,
) -> Tensor:
    """Embeddings for ``Selection.reselect``, made by embedding the candidates, ``[K, N, D]``.

    Each is what ``shape [n, D] -> [n, D]`` makes of the network's; by default just that.
    """
    slots = torch.from_numpy(index.position[index.stored]).to(x.device)
    z = torch.cat([learner.embed_stored(slots), learner.embed(x)])
    return StepEmbeddings(shape(z), slots).at(index.position, learner.memory.size)
