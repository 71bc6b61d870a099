"""A linear head of its own for every task."""

import copy
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from deepccg.core import Batch, State, StateMismatch, Task, make_generator
from deepccg.learners.base import ConfigT, NetworkLearner
from deepccg.learners.readout import LinearReadout, combine
from deepccg.learners.state import GeneratorPart, ModulePart, Part
from deepccg.networks import GrowingLinear


class HeadLearner(NetworkLearner[ConfigT]):
    """A network with one shared linear head whose rows grow with the classes."""

    def set_up(self, seed: int) -> None:
        """The head, with a row for each class known already."""
        super().set_up(seed)
        self.head = GrowingLinear(self.dim).to(self.device, self.dtype)
        self.head_generator = make_generator(seed, "head")
        self.head.grow(len(self.outputs), self.head_generator)

    def receive(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """As ``NetworkLearner.receive``; the head grows rows for new classes."""
        received = super().receive(batch)
        self.head.grow(len(self.outputs), self.head_generator)
        return received

    def _matching_parts(self, state: State) -> dict[str, State]:
        found = super()._matching_parts(state)
        rows = {len(value) for value in found["head"].tensors.values()}
        classes = len(found["outputs"].meta["classes"])
        if rows != {classes}:
            raise StateMismatch(f"the state's head has {sorted(rows)} rows for {classes} classes")
        return found

    def modules(self) -> list[nn.Module]:
        """Network and head."""
        return [self.network, self.head]

    def logits(self, x: Tensor) -> Tensor:
        """Raw logits with gradient, ``[B, C]``."""
        if not self.network.training:
            self.network.train()
        raw: Tensor = self.head(self.network(x))
        return raw

    def scores(self, x: Tensor) -> Tensor:
        """Raw logits without gradient, ``[B, C]``."""
        raw: Tensor = self.head(self.embed(x))
        return raw

    def frozen(self, mask: Tensor, task: Task | None) -> Callable[[Tensor], Tensor]:
        """A copy of the head that predicts."""
        del task
        head = copy.deepcopy(self.predicting_head())
        return lambda z: head(z).masked_fill(~mask, -math.inf)

    def predicting_head(self) -> GrowingLinear:
        """The head whose scores are the predictions."""
        return self.head

    def predicting_network(self) -> nn.Module:
        """The network that embeds for it."""
        return self.network

    def inference_module(self) -> nn.Module:
        """See ``NetworkLearner``."""
        head = self.predicting_head()
        readout = LinearReadout(head.weight, head.bias, torch.zeros(self.dim))
        return combine(self.predicting_network(), readout, self.dtype)

    def parts(self) -> dict[str, Part]:
        """Network, head, and the generator that draws new rows."""
        return {
            **super().parts(),
            "head": ModulePart("head", self.head, grows=True),
            "head_generator": GeneratorPart(self.head_generator),
        }


class TaskHeads:
    """The heads of all tasks, in one growing layer; no row serves two tasks.

    Args:
        head: Holds the rows, in the order in which they were asked for.
        generator: Draws new rows.
    """

    def __init__(self, head: GrowingLinear, generator: torch.Generator) -> None:
        self.head, self.generator = head, generator
        self.rows: list[tuple[int, int]] = []  # task row and class column of each row

    def grow(self, task: int, columns: Sequence[int]) -> None:
        """Have a row for each of the class ``columns`` of a task."""
        known = set(self.rows)
        self.rows += [(task, column) for column in columns if (task, column) not in known]
        self.head.grow(len(self.rows), self.generator)

    def columns(self, task: int) -> list[int]:
        """The class column of each of the task's outputs."""
        return [column for owner, column in self.rows if owner == task]

    def logits(self, z: Tensor, task: int) -> Tensor:
        """Outputs of a task's head, ``[B, D] -> [B, len(columns(task))]``."""
        return torch.nn.functional.linear(z, *self.rows_of(task))

    def rows_of(self, task: int) -> tuple[Tensor, Tensor]:
        """Weights and biases of a task's head, copied."""
        own = [row for row, (owner, _) in enumerate(self.rows) if owner == task]
        return self.head.weight[own], self.head.bias[own]

    @property
    def bytes(self) -> int:
        """Of all heads."""
        return sum(p.numel() * p.element_size() for p in self.head.parameters())

    def state(self) -> State:
        """Copies of the rows, and whose they are."""
        rows = [[task, column] for task, column in self.rows]
        return State(ModulePart("heads", self.head).state().tensors, {"rows": rows})

    def check(self, state: State) -> None:
        """As many rows as are spoken for."""
        ModulePart("heads", self.head, grows=True).check(state)
        rows = [(int(task), int(column)) for task, column in state.meta["rows"]]
        if any(len(tensor) != len(rows) for tensor in state.tensors.values()):
            raise StateMismatch(f"the state's heads do not have the {len(rows)} rows they should")

    def load(self, state: State) -> None:
        """Copy the state's rows in."""
        ModulePart("heads", self.head, grows=True).load(state)
        self.rows = [(int(task), int(column)) for task, column in state.meta["rows"]]
