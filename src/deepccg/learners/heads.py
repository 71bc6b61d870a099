"""Linear heads that grow with the classes: one for all tasks or one for each; the masked loss."""

import copy
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from pydantic import Field, NonNegativeInt
from torch import Tensor, nn

from deepccg.core import Batch, State, StateMismatch, Task, make_generator
from deepccg.learners.base import ConfigT, NetworkLearner, predicting
from deepccg.learners.class_table import ReplayMask, TrainMask
from deepccg.learners.optimiser import ReplayReduction, reduce_replay
from deepccg.learners.readout import LinearReadout, combine
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.state import Stateful, StatefulGenerator, StatefulModule
from deepccg.memory import draw_uniform, offer_to_reservoir


def masked_cross_entropy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """``-o_y + logsumexp over the allowed classes`` for each example, ``[B]``.

    Outputs outside an example's mask get exactly no gradient from it.
    """
    allowed = logits.masked_fill(~mask, -math.inf)
    return torch.logsumexp(allowed, dim=1) - logits.gather(1, y[:, None]).squeeze(1)


class GrowingLinear(nn.Module):
    """``[B, D] -> [B, C]``; rows are added as classes appear and never move.

    New rows are initialised as in ``nn.Linear``, from the caller's generator.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.bias = nn.Parameter(torch.empty(0))

    def grow(self, outputs: int, generator: torch.Generator) -> bool:
        """Grow to at least ``outputs`` rows; return whether any were added."""
        missing = outputs - len(self.bias)
        if missing <= 0:
            return False
        bound = 1 / math.sqrt(self.dim)
        drawn = torch.rand(missing, self.dim + 1, generator=generator) * 2 * bound - bound
        drawn = drawn.to(self.weight)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), drawn[:, :-1]]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), drawn[:, -1]]))
        return True

    def forward(self, z: Tensor) -> Tensor:
        """Raw logits."""
        return nn.functional.linear(z, self.weight, self.bias)


class ReplayConfig(RecipeConfig):
    """Fields of every method that replays stored examples on a head."""

    replay: NonNegativeInt = Field(10, description="stored examples replayed per step")
    reduction: ReplayReduction = Field(
        "mean",
        description="over batch and replay together: mean or sum; means: mean of each, added",
    )
    train_mask: TrainMask = "task"
    replay_mask: ReplayMask = "task"


ReplayConfigT = TypeVar("ReplayConfigT", bound=ReplayConfig)


class HeadLearner(NetworkLearner[ConfigT]):
    """A network with one shared linear head whose rows grow with the classes.

    With a ``ReplayConfig`` it can replay: draw from memory, mask, take the loss, store.
    """

    def build_state(self, seed: int) -> None:
        """The head, with a row for each class known already."""
        super().build_state(seed)
        self.head = self.build_head().to(self.device, self.dtype)
        self.head_generator = make_generator(seed, "head")
        self.head.grow(len(self.class_table), self.head_generator)

    def build_head(self) -> GrowingLinear:
        """The head, without a row."""
        return GrowingLinear(self.dim)

    def begin_step(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As ``NetworkLearner.begin_step``; the head grows rows for new classes."""
        checked = super().begin_step(batch)
        self.head.grow(len(self.class_table), self.head_generator)
        return checked

    def logits(self, x: Tensor) -> Tensor:
        """Raw logits of inputs as they are, with gradient, ``[B, C]``."""
        if not self.network.training:
            self.network.train()
        raw: Tensor = self.head(self.network(x))
        return raw

    def logits_with_replay(self, x: Tensor, slots: Tensor) -> Tensor:
        """Raw logits of ``replay_inputs`` with gradient, ``[B + R, C]``."""
        raw: Tensor = self.head(self.embed_with_replay(x, slots))
        return raw

    # Replay

    def draw_replay(self: "HeadLearner[ReplayConfigT]") -> Tensor:
        """Slots of R: uniform, without replacement, at most ``replay`` of them."""
        return draw_uniform(self.memory.y, self.config.replay, self.generator)

    def loss(
        self: "HeadLearner[ReplayConfigT]", x: Tensor, y: Tensor, task_idx: Tensor, replay: Tensor
    ) -> Tensor:
        """Cross entropy of batch and replay in one forward, each example under its own mask."""
        logits = self.logits_with_replay(x, replay)
        labels = self.replay_labels(y, replay)
        terms = masked_cross_entropy(logits, labels, self.masks(task_idx, replay))
        return reduce_replay(terms, len(y), self.config.reduction)

    def update_memory(self, x: Tensor, y: Tensor, task_idx: Tensor) -> None:
        """Offer the batch to the reservoir, whose counter is the number of examples seen."""
        seen = int(self.class_table.seen.sum()) - len(y)
        offer_to_reservoir(self.memory, x, y, task_idx, seen, self.generator)

    # Predictions and state

    def trainable_modules(self) -> list[nn.Module]:
        """Network and head."""
        return [self.network, self.head]

    def scores(self, x: Tensor) -> Tensor:
        """Raw logits without gradient, ``[B, C]``."""
        raw: Tensor = self.head(self.embed(x))
        return raw

    def frozen_classifier(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """A copy of the head that predicts."""
        del task
        head = copy.deepcopy(self.predicting_head())
        return lambda z: head(z).masked_fill(~mask, -math.inf)

    def predicting_head(self) -> GrowingLinear:
        """The head whose scores are the predictions."""
        return self.head

    @predicting
    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        head = self.predicting_head()
        readout = LinearReadout(head.weight, head.bias, torch.zeros(self.dim))
        return combine(self.predicting_embedding(), readout, self.dtype)

    def state_parts(self) -> dict[str, Stateful]:
        """Network, head, and the generator that draws new rows."""
        return {
            **super().state_parts(),
            "head": StatefulModule("head", self.head, grows=True),
            "head_generator": StatefulGenerator(self.head_generator),
        }

    def _validate_state(self, state: State) -> dict[str, State]:
        found = super()._validate_state(state)
        rows = {len(value) for value in found["head"].tensors.values()}
        classes = len(found["outputs"].meta["classes"])
        if rows != {classes}:
            raise StateMismatch(f"the state's head has {sorted(rows)} rows for {classes} classes")
        return found


class TaskHeads:
    """The heads of all tasks, in one growing layer; no row serves two tasks."""

    def __init__(self, head: GrowingLinear, generator: torch.Generator) -> None:
        self.head, self.generator = head, generator
        self.rows: list[tuple[int, int]] = []  # task index and class column of each row

    def grow(self, task: int, columns: Sequence[int]) -> None:
        """Have a row for each of the class ``columns`` of a task."""
        known = set(self.rows)
        self.rows += [(task, column) for column in columns if (task, column) not in known]
        self.head.grow(len(self.rows), self.generator)

    def columns(self, task: int) -> list[int]:
        """The class column of each of the task's outputs."""
        return [column for owner, column in self.rows if owner == task]

    def logits(self, z: Tensor, task: int) -> Tensor:
        """Logits of a task's head, ``[B, D] -> [B, len(columns(task))]``."""
        return torch.nn.functional.linear(z, *self.rows_of(task))

    def rows_of(self, task: int) -> tuple[Tensor, Tensor]:
        """Weights and biases of a task's head, copied."""
        own = [row for row, (owner, _) in enumerate(self.rows) if owner == task]
        return self.head.weight[own], self.head.bias[own]

    @property
    def bytes(self) -> int:
        """Of all heads."""
        return sum(parameter.nbytes for parameter in self.head.parameters())

    def state(self) -> State:
        """Copies of the rows, and whose they are."""
        rows = [[task, column] for task, column in self.rows]
        return State(StatefulModule("heads", self.head).state().tensors, {"rows": rows})

    def check(self, state: State) -> None:
        """Reject a state whose heads do not have a row for each output."""
        StatefulModule("heads", self.head, grows=True).check(state)
        rows = [(int(task), int(column)) for task, column in state.meta["rows"]]
        if any(len(tensor) != len(rows) for tensor in state.tensors.values()):
            raise StateMismatch(f"the state's heads do not have the {len(rows)} rows they should")

    def load(self, state: State) -> None:
        """Copy the state's rows in."""
        StatefulModule("heads", self.head, grows=True).load(state)
        self.rows = [(int(task), int(column)) for task, column in state.meta["rows"]]
