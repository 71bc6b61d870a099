"""A copy of network and head that is asked and never trained."""

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from deepccg.core import State, StateMismatch
from deepccg.learners.heads import GrowingLinear
from deepccg.learners.state import StatefulModule, collect_state, tensors_of
from deepccg.networks import map_in_chunks


class Teacher:
    """Network and head as they were, or averaged over time; a saved part of its learner."""

    def __init__(self, network: nn.Module, head: GrowingLinear) -> None:
        self.network = copy.deepcopy(network).requires_grad_(False).eval()
        self.head = copy.deepcopy(head).requires_grad_(False)

    @torch.no_grad()
    def logits(self, x: Tensor) -> Tensor:
        """Raw logits ``[B, C]``, without gradient."""
        return map_in_chunks(lambda piece: self.head(self.network(piece)), x)

    @torch.no_grad()
    def grow(self, head: GrowingLinear) -> None:
        """Copy those rows of ``head`` that this one does not have."""
        rows = len(self.head.bias)
        for name, value in head.named_parameters():
            grown = torch.cat([self.head.get_parameter(name), value[rows:]])
            self.head.register_parameter(name, nn.Parameter(grown, requires_grad=False))

    @torch.no_grad()
    def average(self, network: nn.Module, head: GrowingLinear, decay: float) -> None:
        """``s <- decay s + (1 - decay) w`` for every parameter; buffers are copied."""
        for own, other in ((self.network, network), (self.head, head)):
            for mean, value in zip(own.parameters(), other.parameters(), strict=True):
                mean.lerp_(value, 1 - decay)
            for buffer, now in zip(own.buffers(), other.buffers(), strict=True):
                buffer.copy_(now)

    @property
    def bytes(self) -> int:
        """Bytes of all parameters and buffers."""
        tensors = [t for m in (self.network, self.head) for t in (*m.parameters(), *m.buffers())]
        return sum(tensor.nbytes for tensor in tensors)

    def state(self) -> State:
        """Copies of all parameters and buffers."""
        tensors, _ = collect_state(self._parts())
        return State(tensors, {"rows": len(self.head.bias)})

    def check(self, state: State) -> None:
        """The same network, and a head whose weights and biases have as many rows as it says."""
        for name, part in self._parts().items():
            part.check(State(tensors_of(name, state), {}))
        rows = {len(value) for value in tensors_of("head", state).values()}
        if rows != {state.meta["rows"]}:
            raise StateMismatch(f"the state's copied head has {sorted(rows)} rows")

    def load(self, state: State) -> None:
        """Be the copy that was saved."""
        for name, part in self._parts().items():
            part.load(State(tensors_of(name, state), {}))
        self.head.requires_grad_(False)

    def _parts(self) -> dict[str, StatefulModule]:
        return {
            "network": StatefulModule("copied network", self.network),
            "head": StatefulModule("copied head", self.head, grows=True),
        }


class Snapshot:
    """A teacher there may be: a copy of network and head, with the columns that it knows."""

    def __init__(self, network: nn.Module, head: GrowingLinear) -> None:
        self._network, self._head = network, head
        self.teacher: Teacher | None = None
        self.columns: list[int] = []

    @property
    def bytes(self) -> int:
        """Bytes of the copy; none before it was taken."""
        return 0 if self.teacher is None else self.teacher.bytes

    def take(self, columns: Sequence[int]) -> None:
        """Copy network and head as they are now; they have learned ``columns``."""
        self.teacher = Teacher(self._network, self._head)
        self.columns = list(columns)

    def state(self) -> State:
        """The copy, or that there is none."""
        if self.teacher is None:
            return State({}, {"taken": False})
        state = self.teacher.state()
        return State(state.tensors, {**state.meta, "taken": True, "columns": list(self.columns)})

    def check(self, state: State) -> None:
        """Tensors exactly where a copy was taken, and only columns that its head has."""
        if not state.meta["taken"]:
            if state.tensors:
                raise StateMismatch("the state has a copied network, and says that it has none")
            return
        Teacher(self._network, self._head).check(state)
        if not all(0 <= column < state.meta["rows"] for column in state.meta["columns"]):
            raise StateMismatch(
                f"the state's copied head has {state.meta['rows']} rows "
                f"for the columns {state.meta['columns']}"
            )

    def load(self, state: State) -> None:
        """Hold the copy that was saved, or none."""
        self.teacher, self.columns = None, []
        if state.meta["taken"]:
            self.take([int(column) for column in state.meta["columns"]])
            assert self.teacher is not None  # noqa: S101  (taken on the line above)
            self.teacher.load(state)
