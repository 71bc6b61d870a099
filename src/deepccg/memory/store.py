"""Fixed-capacity storage of examples with their class column and task row."""

import torch
from torch import Tensor

from deepccg.core import InputError, State, StateMismatch


class MemoryStore:
    """At most ``capacity`` examples; the live ones are the first ``size`` slots.

    Examples are kept as they came (uint8 images stay uint8), each with its class column and the
    row of its task in the learner's task table, always moved together.

    Args:
        capacity: The budget, in examples.

    >>> store = MemoryStore(capacity=2)
    >>> store.append(torch.zeros(1, 3), torch.tensor([4]), torch.tensor([0]))
    >>> store.size, store.y.tolist()
    (1, [4])
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise InputError(f"memory must be 0 or more examples, not {capacity}")
        self.capacity = capacity
        self.size = 0
        self._x = torch.empty(0)
        self._y = torch.empty(0, dtype=torch.int64)
        self._task = torch.empty(0, dtype=torch.int64)

    @property
    def x(self) -> Tensor:
        """Stored examples ``[M, ...]``."""
        return self._x[: self.size]

    @property
    def y(self) -> Tensor:
        """Their class columns ``[M]``."""
        return self._y[: self.size]

    @property
    def task(self) -> Tensor:
        """Their task rows ``[M]``."""
        return self._task[: self.size]

    @property
    def bytes(self) -> int:
        """Bytes held by the stored examples and their labels."""
        parts = (self.x, self.y, self.task)
        return sum(part.numel() * part.element_size() for part in parts)

    def append(self, x: Tensor, y: Tensor, task: Tensor) -> None:
        """Store further examples behind the present ones."""
        slots = torch.arange(self.size, self.size + len(y))
        self.write(slots, x, y, task)

    def write(self, slots: Tensor, x: Tensor, y: Tensor, task: Tensor) -> None:
        """Put examples into slots; slots beyond ``size`` must follow it without a gap."""
        if len(slots) == 0:
            return
        size = max(self.size, int(slots.max()) + 1)
        if size > self.capacity:
            raise InputError(f"{size} examples do not fit a memory of {self.capacity}")
        if self._x.shape[1:] != x.shape[1:] or self._x.dtype != x.dtype or len(self._x) == 0:
            self._allocate(x)
        slots = slots.to(x.device)
        self._x[slots] = x
        self._y[slots] = y
        self._task[slots] = task
        self.size = size

    def remove(self, slots: Tensor) -> None:
        """Drop examples; the others close the gaps and keep their order."""
        keep = torch.ones(self.size, dtype=torch.bool, device=self.y.device)
        keep[slots.to(keep.device)] = False
        kept = int(keep.sum())
        for column in (self._x, self._y, self._task):
            column[:kept] = column[: self.size][keep]
        self.size = kept

    def _allocate(self, x: Tensor) -> None:
        if self.size:
            raise InputError(
                f"examples changed from {list(self._x.shape[1:])} {self._x.dtype} "
                f"to {list(x.shape[1:])} {x.dtype}"
            )
        self._x = torch.zeros((self.capacity, *x.shape[1:]), dtype=x.dtype, device=x.device)
        self._y = torch.zeros(self.capacity, dtype=torch.int64, device=x.device)
        self._task = torch.zeros(self.capacity, dtype=torch.int64, device=x.device)

    def state(self) -> State:
        """The live examples; free slots are not saved."""
        tensors = {"x": self.x, "y": self.y, "task": self.task}
        return State({k: v.clone() for k, v in tensors.items()}, {"capacity": self.capacity})

    def check(self, state: State) -> None:
        """Refuse a state that this store cannot hold."""
        if state.meta.get("capacity") != self.capacity:
            raise StateMismatch(
                f"the state has a memory of {state.meta.get('capacity')} examples, "
                f"this learner one of {self.capacity}"
            )
        lengths = {len(state.tensors[name]) for name in ("x", "y", "task")}
        if len(lengths) != 1 or max(lengths) > self.capacity:
            raise StateMismatch(f"the state's memory columns have lengths {sorted(lengths)}")

    def load(self, state: State) -> None:
        """Hold exactly what ``state`` holds."""
        self.size = 0
        self._x = torch.empty(0)
        self.append(state.tensors["x"], state.tensors["y"], state.tensors["task"])
