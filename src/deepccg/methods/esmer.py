"""ESMER: replay taught by a slowly moving copy, wary of errors that are suddenly large."""

import math
from typing import Annotated, Literal, Self

import torch
from pydantic import Field, FiniteFloat, NonNegativeFloat, NonNegativeInt, model_validator
from torch import Tensor, nn

from deepccg.core import Batch, MemoryUsage, State, StateMismatch, StepInfo, make_generator
from deepccg.learners.heads import GrowingLinear, HeadLearner, ReplayConfig, masked_cross_entropy
from deepccg.learners.optimiser import ReplayReduction, reduce_replay
from deepccg.learners.state import Stateful, StatefulGenerator
from deepccg.learners.teacher import Teacher
from deepccg.memory import offer_to_reservoir
from deepccg.networks import map_in_chunks


class ESMERConfig(ReplayConfig):
    """Fields of ESMER; the paper's values, tuned on CIFAR-100, serve every data set."""

    reduction: ReplayReduction = Field(
        "means",
        description="mean over the batch plus mean over the replay (means), or mean or sum over "
        "both together",
    )
    ema_decay: float = Field(
        0.999, ge=0, lt=1, description="alpha_EMA: decay of the stable network, reached gradually"
    )
    ema_rate: float = Field(
        0.7, ge=0, le=1, description="r: probability that a step moves the stable network"
    )
    loss_decay: float = Field(
        0.99, ge=0, lt=1, description="alpha_l: decay of the running mean loss, reached gradually"
    )
    margin: Annotated[FiniteFloat, Field(gt=0)] | Literal["none"] = Field(
        2.5, description="beta: a loss above margin x the running mean is large; none: no loss is"
    )
    consistency: NonNegativeFloat = Field(
        0.2, description="gamma: weight of the replay's squared distance to the stable logits"
    )
    predict_with: Literal["stable", "working"] = Field(
        "stable", description="network that predicts: the stable one or the one being trained"
    )
    memory_reduction: NonNegativeInt = Field(
        0, description="examples stored fewer than the budget, in exchange for the network's copy"
    )
    memory_rule: Literal["examples", "bytes"] = Field(
        "examples",
        description="examples: the budget less memory_reduction; bytes: less as many examples as "
        "take the bytes of the copy of network and head at the first batch",
    )

    @model_validator(mode="after")
    def _has_one_average(self) -> Self:
        if self.average and self.predict_with == "stable":
            raise ValueError(
                "the stable network is an average of its own: set ema_decay, or "
                "predict_with=working"
            )
        return self


class ErrorMemory:
    """What ESMER remembers of past losses, and how much of its memory is in use.

    Args:
        limit: How many examples may be stored; ``None`` before the first batch.
    """

    def __init__(self, limit: int | None) -> None:
        self.mean = 0.0  # running mean loss mu of the stable network; 0 = none yet
        self.offered = 0  # examples offered to the reservoir
        self.limit = limit

    def state(self) -> State:
        """Three numbers."""
        meta = {"mean": self.mean, "offered": self.offered, "limit": self.limit}
        return State({}, meta)

    def check(self, state: State) -> None:
        """Numbers, none of them negative."""
        numbers = (state.meta["mean"], state.meta["offered"], state.meta["limit"] or 0)
        if not all(isinstance(n, int | float) and 0 <= n < math.inf for n in numbers):
            raise StateMismatch(f"the state's error memory holds {numbers}")

    def load(self, state: State) -> None:
        """Go on from these numbers."""
        limit = state.meta["limit"]
        self.mean, self.offered = float(state.meta["mean"]), int(state.meta["offered"])
        self.limit = None if limit is None else int(limit)


class ESMER(HeadLearner[ESMERConfig]):
    """ESMER: error-sensitive replay with a stable network s beside the working one w.

    With a_i the cross entropy of example i under s, and mu the running mean of such losses, w
    takes one step on

        mean_B v_i CE_w(x_i, y_i) + mean_R [CE_w(x, y) + gamma norm(o_w(x) - o_s(x))^2 / C],

    v_i = 1 while mu = 0 or a_i <= beta mu, else mu / a_i. Only examples within that margin are
    offered to the reservoir. Then, with probability r, s <- alpha s + (1 - alpha) w, and mu moves
    to the batch's mean loss, leaving out losses above mean + one standard deviation. There is no
    warm-up: with one epoch per task it would keep the memory empty.

    Reference: Sarfraz, Arani & Zonooz, "Error Sensitivity Modulation based Experience Replay",
    ICLR 2023; the row "ESMER" of Lee & Storkey, AISTATS 2024, Table 1.
    """

    Config = ESMERConfig

    def build_state(self, seed: int) -> None:
        """The stable network and the error memory."""
        super().build_state(seed)
        self.stable = Teacher(self.network, self.head)
        by_bytes = self.config.memory_rule == "bytes"
        limit = max(0, self.memory.capacity - self.config.memory_reduction)
        self.errors = ErrorMemory(None if by_bytes else limit)
        # Its own, so that the stable network changes nothing of what ER would draw.
        self.ema_generator = make_generator(seed, "ema")

    def begin_step(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As ``HeadLearner.begin_step``; the stable head takes over new rows."""
        x, y, task_idx = super().begin_step(batch)
        self.stable.grow(self.head)
        if self.errors.limit is None:
            example = sum(part[0].nbytes for part in (x, y, task_idx))
            spent = math.ceil(self.stable.bytes / example)
            self.errors.limit = max(0, self.memory.capacity - spent)
        return x, y, task_idx

    def learn(self, batch: Batch) -> StepInfo:
        """One step of the working network; store; then move stable network and error memory."""
        x, y, task_idx = self.begin_step(batch)
        errors = []
        for _ in self.repeats():
            replay = self.draw_replay()
            total, error = self.loss_and_errors(x, y, task_idx, replay)
            loss = self.optimise(total)
            self.follow()
            errors.append(error)
        error = errors[0]  # before the batch was learned
        small = self.within_margin(error)
        self.update_memory(x[small], y[small], task_idx[small])
        self.note(error)
        extra = {"discounted": 1 - float(small.double().mean()), "mean_error": self.errors.mean}
        return self.end_step(loss, len(replay), extra)

    def loss_and_errors(
        self, x: Tensor, y: Tensor, task_idx: Tensor, replay: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The loss of the working network, and the stable one's on the batch, ``a [B]``."""
        size = len(y)
        inputs, labels = self.replay_inputs(x, replay), self.replay_labels(y, replay)
        masks = self.masks(task_idx, replay)
        stable = self.stable.logits(inputs)
        error = masked_cross_entropy(stable[:size], y, masks[:size])
        logits = self.logits(inputs)
        terms = masked_cross_entropy(logits, labels, masks)
        apart = (logits[size:] - stable[size:]).square().mean(dim=1)
        of_batch = self.weights(error, self.within_margin(error)) * terms[:size]
        of_replay = terms[size:] + self.config.consistency * apart
        total = reduce_replay(torch.cat([of_batch, of_replay]), size, self.config.reduction)
        return total, error

    def within_margin(self, error: Tensor) -> Tensor:
        """Which losses ``a [B]`` are not large: all while there is no running mean."""
        if self.config.margin == "none" or self.errors.mean == 0:
            return torch.ones_like(error, dtype=torch.bool)
        return error <= self.config.margin * self.errors.mean

    def weights(self, error: Tensor, small: Tensor) -> Tensor:
        """``v [B]``: a large loss counts as much as one at the running mean."""
        return torch.where(small, torch.ones_like(error), self.errors.mean / error)

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Offer examples to the reservoir, which counts only what it was offered."""
        seen, limit = self.errors.offered, self.errors.limit
        offer_to_reservoir(self.memory, x, y, task_idx, seen, self.generator, limit)
        self.errors.offered += len(y)

    def follow(self) -> None:
        """With probability r, move the stable network towards the working one."""
        if float(torch.rand((), generator=self.ema_generator)) < self.config.ema_rate:
            self.stable.average(self.network, self.head, self._decay(self.config.ema_decay))

    def note(self, error: Tensor) -> None:
        """Move the running mean to the batch's mean loss without its outliers."""
        if len(error) > 1:  # one loss has no standard deviation
            error = error[error <= error.mean() + error.std()]
        decay = self._decay(self.config.loss_decay)
        self.errors.mean = decay * self.errors.mean + (1 - decay) * float(error.mean())

    def _decay(self, final: float) -> float:
        """1 - 1/(step + 1), where the first step is 1, until ``final`` is reached."""
        return min(1 - 1 / (self.steps + 2), final)

    def scores(self, x: Tensor) -> Tensor:
        """Raw logits of the network that ``predict_with`` names, ``[B, C]``."""
        if self.config.predict_with == "stable":
            return map_in_chunks(lambda piece: self.stable.head(self.embed(piece)), x)
        return super().scores(x)

    def predicting_head(self) -> GrowingLinear:
        """The head of that network."""
        return self.stable.head if self.config.predict_with == "stable" else self.head

    def predicting_network(self) -> nn.Module:
        """That network."""
        return self.stable.network if self.config.predict_with == "stable" else self.network

    def memory_usage(self) -> MemoryUsage:
        """The memory, and the stable network with its head."""
        held = super().memory_usage()
        return MemoryUsage(held.examples, {**held.bytes, "network copy": self.stable.bytes})

    def state_parts(self) -> dict[str, Stateful]:
        """What ER saves; stable network and head; error memory; when to move them."""
        return {
            **super().state_parts(),
            "stable": self.stable,
            "errors": self.errors,
            "ema_generator": StatefulGenerator(self.ema_generator),
        }

    def _validate_state(self, state: State) -> dict[str, State]:
        found = super()._validate_state(state)
        rows, classes = found["stable"].meta["rows"], len(found["outputs"].meta["classes"])
        if rows != classes:
            raise StateMismatch(f"the state's stable head has {rows} rows for {classes} classes")
        return found
