"""One step of a method whose classifier is derived from memory and never learned."""

from abc import abstractmethod
from typing import Generic, Literal, TypeVar

import torch
import torch.nn.functional as F
from pydantic import Field, NonNegativeInt, PositiveFloat
from torch import Tensor

from deepccg.core import Batch, Config, Diverged, State, StepInfo
from deepccg.gaussian import log_conditional_marginal_likelihood
from deepccg.methods.base import NetworkLearner
from deepccg.methods.losses import Reduction, reduce
from deepccg.methods.outputs import Mask
from deepccg.methods.replay import draw_balanced, draw_uniform, give_back


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
    reduction: Reduction = Field(
        "mean", description="over the terms of a step: mean, or sum as printed"
    )
    train_mask: Mask = Field(
        "task", description="classes an incoming example is compared with: task, seen or all"
    )
    replay_mask: Mask = Field(
        "seen", description="classes a replayed example is compared with: its own task, seen or all"
    )
    normalise: bool = Field(False, description="embeddings of unit length before scaling")
    mean_gradient: bool = Field(False, description="gradient also through the memory's means")


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
    def remember(self, x: Tensor, y: Tensor, rows: Tensor, z: Tensor, belief: BeliefT) -> None:
        """Offer the batch to memory.

        Args:
            x: The batch ``[B, ...]``.
            y: Its class columns ``[B]``.
            rows: Its task rows ``[B]``.
            z: Embeddings from before the step, ``[M + B, D]``: stored examples, then the batch.
                Rows of classes that were not needed hold nothing.
            belief: What the step was conditioned on.
        """

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
        replay = drawn if self.config.replay_draw == "literal" else give_back(drawn, self.memory.y)
        mask = self._mask(rows, replay)
        rest = self._slots_needed(mask, y, self.giving_up(), replay)
        fresh, z_rest = self._embed_step(x, replay, rest)
        if not bool(torch.isfinite(fresh).all()):
            raise Diverged(f"embeddings are not finite at step {self.steps + 1}: try a smaller lr")
        classes = torch.cat([y, self.memory.y[replay]])
        belief = self.condition(z_rest, self.memory.y[rest], classes)
        terms, _ = log_conditional_marginal_likelihood(
            self.step_density(fresh, y, belief, mask), classes
        )
        loss = -reduce(terms, self.config.reduction) if len(terms) else None
        value = 0.0 if loss is None else self.descend(loss, self.config.lr)
        z = fresh.new_empty(self.memory.size + len(y), self.dim)
        z[rest], z[replay] = z_rest.detach(), fresh[len(y) :].detach()
        z[self.memory.size :] = fresh[: len(y)].detach()
        self.remember(x, y, rows, z, belief)
        self.steps += 1
        extra = {"terms": len(terms), "returned": len(drawn) - len(replay), **self.tell(belief)}
        return StepInfo(loss=value, replayed=len(replay), extra=extra)

    def draw_replay(self) -> Tensor:
        """Slots of R; at most half of the memory, so that something is left to condition on."""
        count = self.config.replay
        if self.config.replay_draw == "half":
            count = min(count, self.memory.size // 2)
        draw = draw_uniform if self.config.replay_sampling == "uniform" else draw_balanced
        return draw(self.memory.y, count, self.generator)

    def step_density(self, z: Tensor, y: Tensor, belief: BeliefT, mask: Tensor) -> Tensor:
        """Log densities ``[B + R, C]`` of what is stepped on; the first are the batch's, ``y``."""
        del y
        return self.masked_under(belief, self.score(z, belief), mask)

    def _mask(self, rows: Tensor, replay: Tensor) -> Tensor:
        train = self.outputs.mask(self.config.train_mask, rows)
        again = self.outputs.mask(self.config.replay_mask, self.memory.task[replay])
        return torch.cat([train, again]).to(self.device)

    def _slots_needed(self, mask: Tensor, y: Tensor, over: list[int], replay: Tensor) -> Tensor:
        """Stored examples outside R whose class some mask allows or whose memory may change."""
        needed = mask.any(dim=0)
        needed[y] = True
        needed[over] = True
        wanted = needed[self.memory.y]
        wanted[replay] = False
        return wanted.nonzero().flatten()

    def _embed_step(self, x: Tensor, replay: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
        """Embeddings of batch and replay with gradient, and of ``rest``, by default without."""
        stepped = torch.cat([x, self.memory.x[replay]]) if len(replay) else x
        if self.config.mean_gradient and len(rest):
            self.network.train()
            z = self._shape(self.network(torch.cat([stepped, self.memory.x[rest]])))
            return z[: len(stepped)], z[len(stepped) :]
        conditioning = self._embed_stored(rest)
        self.network.train()
        return self._shape(self.network(stepped)), conditioning

    def _embed_stored(self, slots: Tensor) -> Tensor:
        if len(slots) == 0:
            return torch.zeros(0, self.dim, dtype=self.dtype, device=self.device)
        return self._embed_now(self.memory.x[slots])

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
            y = self.memory.y
            z = self._embed_stored(torch.arange(len(y), device=self.device))
            self._belief = self.condition(z, y, y[:0])
        return self._belief

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        super().load_state_dict(state)
        self._belief = None
