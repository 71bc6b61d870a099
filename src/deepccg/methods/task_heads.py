"""A linear head of its own for every task."""

from collections.abc import Sequence

import torch
from torch import Tensor

from deepccg.core import State, StateMismatch
from deepccg.methods.parts import ModulePart
from deepccg.networks import GrowingLinear


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
