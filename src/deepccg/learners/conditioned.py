"""One step of a method whose classifier is derived from memory and never learned."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor

from deepccg.core import Batch, Config, Diverged, State, StepInfo, Task
from deepccg.gaussian import log_conditional_marginal_likelihood
from deepccg.learners.base import NetworkLearner
from deepccg.learners.classes import Mask
from deepccg.learners.inputs import usable
from deepccg.learners.losses import ReplayReduction, reduce, reduce_replay
from deepccg.learners.selection import Embedded
from deepccg.memory.sampling import draw_balanced, draw_uniform, give_back


class ConditionedConfig(Config):
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
    train_mask: Mask = Field(
        "task", description="classes an incoming example is compared with: task, seen or all"
    )
    replay_mask: Mask = Field(
        "seen", description="classes a replayed example is compared with: its own task, seen or all"
    )
    normalise: bool = Field(False, description="embeddings of unit length before scaling")
    mean_gradient: bool = Field(False, description="gradient also through the memory's means")


class Conditioning(NamedTuple):
    """What a step knows of the stored examples it is conditioned on.

    Args:
        z: Embeddings ``[n, D]``, with gradient only under ``mean_gradient``.
        known: Which come from the present network; the others are estimates, ``[n]``. By default
            all do.
        error: Squared error of each class's mean because of the estimates, ``[C]``.
    """

    z: Tensor
    known: Tensor | None = None
    error: Tensor | None = None


ConfigT = TypeVar("ConfigT", bound=ConditionedConfig)
BeliefT = TypeVar("BeliefT")


class ConditionedLearner(NetworkLearner[ConfigT], Generic[ConfigT, BeliefT]):
    r"""Condition a belief on M \ R, step on ``-log p(y | z, belief)`` over batch and R.

    A subclass says what it believes given embeddings (``condition``), which log density that
    gives to each class (``score``, ``masked_under``), and what it stores (``remember``). Nothing
    that is scored in a step is among what it is scored by. For predictions the belief is given
    all of memory under the present network; it is dropped whenever the network moves.
    """

    def set_up(self, seed: int) -> None:
        """Nothing is believed yet."""
        super().set_up(seed)
        self._belief: BeliefT | None = None

    @abstractmethod
    def condition(self, z: Tensor, y: Tensor, scored: Tensor) -> BeliefT:
        """What follows from embeddings ``z [n, D]`` of classes ``y [n]``.

        Args:
            z: Embeddings, with gradient only under ``mean_gradient``.
            y: Their class columns.
            scored: Class columns of the examples this step scores; empty for a prediction.
        """

    @abstractmethod
    def score(self, z: Tensor, belief: BeliefT) -> Tensor:
        """What can be said of each class before a mask is known, ``[B, C]``."""

    @abstractmethod
    def masked_under(self, belief: BeliefT, scores: Tensor, mask: Tensor) -> Tensor:
        """Log density ``[B, C]`` up to a constant per row; -inf where ``mask [B, C]`` forbids."""

    @abstractmethod
    def remember(self, x: Tensor, y: Tensor, rows: Tensor, z: Embedded, belief: BeliefT) -> None:
        """Offer the batch to memory.

        Args:
            x: The batch ``[B, ...]``.
            y: Its class columns ``[B]``.
            rows: Its task rows ``[B]``.
            z: Embeddings from before the step, of the batch and of what was needed of memory.
            belief: What the step was conditioned on.
        """

    def blurred(self, belief: BeliefT, error: Tensor) -> BeliefT:
        """The belief, if class means are known up to a squared error ``[C]``."""
        del error
        return belief

    def note_terms(self, y: Tensor, terms: Tensor, exist: Tensor) -> None:
        """See what ``step_terms`` gave for a batch of class columns ``y [B]`` and its replay."""
        del y, terms, exist

    def tell(self, belief: BeliefT) -> dict[str, float]:
        """Further scalars of a step."""
        del belief
        return {}

    def giving_up(self) -> list[int]:
        """Classes outside the batch whose stored examples ``remember`` wants embedded."""
        return []

    def learn(self, batch: Batch) -> StepInfo:
        """Condition on memory, step the embedding, offer the batch to memory."""
        x, y, rows = self.receive(batch)
        self._belief = None
        drawn = self.draw_replay()
        replay = drawn
        if self.config.replay_draw != "literal":
            replay = give_back(drawn, self.memory.y, self.memory.counts)
        mask = self._mask(rows, replay)
        over = self.giving_up()
        rest = self._slots_needed(mask, over, replay)
        changing = torch.cat([y, y.new_tensor(over)]) if over else y
        fresh, given = self.embed_step(x, replay, rest, changing)
        if not usable(fresh):
            raise Diverged(
                f"embeddings are too large at step {self.steps + 1}: scale the inputs, "
                f"or try a smaller lr"
            )
        classes = torch.cat([y, self.memory.y.index_select(0, replay)])
        belief = self.condition(given.z, self.memory.y.index_select(0, rest), classes)
        if given.error is not None:
            belief = self.blurred(belief, given.error)
        terms, exist = self.step_terms(fresh, y, classes, belief, mask)
        value = 0.0
        if len(terms):
            value = self.descend(-self._reduced(terms, exist[: len(y)]), self.config.lr)
        self.note_terms(y, terms, exist)
        with torch.no_grad():
            self.remember(x, y, rows, _embedded(rest, given, replay, fresh), belief)
        self.steps += 1
        extra = {"terms": len(terms), "returned": len(drawn) - len(replay), **self.tell(belief)}
        return StepInfo(loss=value, replayed=len(replay), extra=extra)

    def _reduced(self, terms: Tensor, exist: Tensor) -> Tensor:
        """One number of the terms; ``exist [B]`` tells which of the batch's are among them."""
        if self.config.reduction == "means":
            return reduce_replay(terms, int(exist.sum()), "means")
        return reduce(terms, self.config.reduction)

    def draw_replay(self) -> Tensor:
        """Slots of R."""
        draw = draw_uniform if self.config.replay_sampling == "uniform" else draw_balanced
        return draw(self.memory.y, self.replay_size(), self.generator)

    def replay_size(self) -> int:
        """How many to draw; at most half of memory, so that something is left to condition on."""
        literal = self.config.replay_draw == "literal"
        return self.config.replay if literal else min(self.config.replay, self.memory.size // 2)

    def step_terms(
        self, z: Tensor, y: Tensor, classes: Tensor, belief: BeliefT, mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The terms of the loss that exist (Eq. 9), and which of ``z [B + R, D]`` have one.

        Args:
            z: What is stepped on; the first are the batch's.
            y: The batch's class columns ``[B]``.
            classes: Everybody's class columns ``[B + R]``.
            belief: What the step is conditioned on.
            mask: Allowed classes ``[B + R, C]``.
        """
        return log_conditional_marginal_likelihood(self.step_density(z, y, belief, mask), classes)

    def step_density(self, z: Tensor, y: Tensor, belief: BeliefT, mask: Tensor) -> Tensor:
        """Log densities ``[B + R, C]`` of what is stepped on; the first are the batch's, ``y``."""
        del y
        return self.masked_under(belief, self.score(z, belief), mask)

    def _mask(self, rows: Tensor, replay: Tensor) -> Tensor:
        train, again = self.config.train_mask, self.config.replay_mask
        replayed = self.memory.task.index_select(0, replay)
        if train == again:
            return self.outputs.mask(train, torch.cat([rows, replayed])).to(self.device)
        masks = [self.outputs.mask(train, rows), self.outputs.mask(again, replayed)]
        return torch.cat(masks).to(self.device)

    def _slots_needed(self, mask: Tensor, over: list[int], replay: Tensor) -> Tensor:
        """Stored examples outside R whose class some mask allows or whose memory may change.

        The batch's classes are among those allowed: every mask allows an example its own.
        """
        needed = mask.any(dim=0).cpu().numpy()
        needed[over] = True
        wanted = needed[self.memory.y.cpu().numpy()]
        wanted[replay.cpu().numpy()] = False
        return torch.from_numpy(np.flatnonzero(wanted)).to(self.device)

    def embed_step(
        self, x: Tensor, replay: Tensor, rest: Tensor, changing: Tensor
    ) -> tuple[Tensor, Conditioning]:
        """Embeddings of batch and replay with gradient, and of ``rest``, by default without.

        Args:
            x: The batch ``[B, ...]``.
            replay: Slots of R.
            rest: Slots to condition on.
            changing: Class columns whose memory may change in this step.
        """
        del changing
        stepped = torch.cat([x, self.memory.x.index_select(0, replay)]) if len(replay) else x
        if self.config.mean_gradient and len(rest):
            self.network.train()
            z = self._shape(self.network(torch.cat([stepped, self.memory.x[rest]])))
            return z[: len(stepped)], Conditioning(z[len(stepped) :])
        given = Conditioning(self._embed_stored(rest))
        self.network.train()
        return self._shape(self.network(stepped)), given

    def _embed_stored(self, slots: Tensor) -> Tensor:
        if len(slots) == 0:
            return torch.zeros(0, self.dim, dtype=self.dtype, device=self.device)
        return self._embed_now(self.memory.x.index_select(0, slots))

    def _embed_now(self, x: Tensor) -> Tensor:
        return self._shape(self.embed(x))

    def _shape(self, z: Tensor) -> Tensor:
        return F.normalize(z, dim=1) if self.config.normalise else z

    def scores(self, x: Tensor) -> Tensor:
        """See ``NetworkLearner``."""
        return self.score(self._embed_now(x), self.belief())

    def masked(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log predictive densities of the allowed classes."""
        return self.masked_under(self.belief(), scores, mask.expand_as(scores))

    @torch.no_grad()
    def belief(self) -> BeliefT:
        """What follows from all of memory under the present network."""
        if self._belief is None:
            self._belief = self._given(torch.arange(self.memory.size, device=self.device))
        return self._belief

    def frozen(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """The belief in the allowed classes; nothing else of memory is embedded for it."""
        del task
        belief = self._given(self.evidence(mask))

        def density(z: Tensor) -> Tensor:
            scores = self.score(self._shape(z), belief)
            return self.masked_under(belief, scores, mask.expand_as(scores))

        return density

    def evidence(self, mask: Tensor) -> Tensor:
        """Slots that a prediction among the classes ``mask [C]`` depends on."""
        return mask[self.memory.y].nonzero().flatten()

    def _given(self, slots: Tensor) -> BeliefT:
        y = self.memory.y[slots]
        return self.condition(self._embed_stored(slots), y, y[:0])

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._belief = None


def _embedded(rest: Tensor, given: Conditioning, replay: Tensor, fresh: Tensor) -> Embedded:
    """Everything a step has embedded: memory outside R, then R, and the batch."""
    batch, replayed = torch.split(fresh, [len(fresh) - len(replay), len(replay)])
    known = given.known
    if known is not None:
        known = torch.cat([known, torch.ones_like(replay, dtype=torch.bool)])
    return Embedded(torch.cat([given.z, replayed, batch]), torch.cat([rest, replay]), known)
