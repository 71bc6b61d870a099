"""Fixed-capacity storage of examples with their class column and task row."""

from collections import Counter

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
        self._columns = _empty()
        self._counts: Counter[int] | None = None
        self._show(0)

    @property
    def x(self) -> Tensor:
        """Stored examples ``[M, ...]``."""
        return self["x"]

    @property
    def y(self) -> Tensor:
        """Their class columns ``[M]``."""
        return self["y"]

    @property
    def task(self) -> Tensor:
        """Their task rows ``[M]``."""
        return self["task"]

    def __getitem__(self, name: str) -> Tensor:
        """One column of the live examples, ``[M, ...]``: ``x``, ``y``, ``task`` or an extra."""
        return self._live[name]

    @property
    def counts(self) -> Counter[int]:
        """How many examples of each class column are stored."""
        if self._counts is None:
            self._counts = Counter(dict(enumerate(torch.bincount(self.y).tolist())))
        return self._counts

    @property
    def extras(self) -> tuple[str, ...]:
        """Names of what is stored beside example, class and task."""
        return tuple(name for name in self._columns if name not in _OWN)

    @property
    def bytes(self) -> int:
        """Bytes held by the stored examples and their labels, without extras."""
        return sum(_bytes(self[name]) for name in _OWN)

    @property
    def extra_bytes(self) -> dict[str, int]:
        """Bytes held by each extra column."""
        return {name: _bytes(self[name]) for name in self.extras}

    def append(self, x: Tensor, y: Tensor, task: Tensor, **extras: Tensor) -> None:
        """Store further examples behind the present ones."""
        slots = torch.arange(self.size, self.size + len(y))
        self.write(slots, x, y, task, **extras)

    def write(self, slots: Tensor, x: Tensor, y: Tensor, task: Tensor, **extras: Tensor) -> None:
        """Put examples into slots; slots beyond ``size`` must follow it without a gap.

        Args:
            slots: Where to, ``[n]``.
            x: Examples ``[n, ...]``.
            y: Their class columns ``[n]``.
            task: Their task rows ``[n]``.
            **extras: Further columns ``[n, ...]``, the same ones at every call.
        """
        if len(slots) == 0:
            return
        size = max(self.size, int(slots.max()) + 1)
        if size > self.capacity:
            raise InputError(f"{size} examples do not fit a memory of {self.capacity}")
        values = {"x": x, "y": y, "task": task, **extras}
        if self.size == 0:
            self._allocate(values)
        self._check_columns(values)
        self._make_room(size)
        slots = slots.to(x.device)
        for name, value in values.items():
            self._columns[name].index_copy_(0, slots, value)
        self._counts = None
        if size > self.size:
            self._show(size)

    def widen(self, name: str, width: int) -> None:
        """Give a column of vectors ``width`` entries per example; the new ones are zero."""
        column = self._columns.get(name)
        if column is not None and column.shape[1] < width:
            self._columns[name] = torch.nn.functional.pad(column, (0, width - column.shape[1]))
            self._show(self.size)

    def remove(self, slots: Tensor) -> None:
        """Drop examples; the others close the gaps and keep their order."""
        keep = torch.ones(self.size, dtype=torch.bool, device=self.y.device)
        keep[slots.to(keep.device)] = False
        kept = int(keep.sum())
        for column in self._columns.values():
            column[:kept] = column[: self.size][keep]
        self._show(kept)

    def _show(self, size: int) -> None:
        """Note which examples are live, and forget what was derived from those before."""
        self.size = size
        self._live = {name: column[:size] for name, column in self._columns.items()}
        self._counts = None

    def _allocate(self, values: dict[str, Tensor]) -> None:
        known = {name: (c.shape[1:], c.dtype) for name, c in self._columns.items() if len(c)}
        if known != {name: (value.shape[1:], value.dtype) for name, value in values.items()}:
            self._columns = {
                name: value.new_zeros((0, *value.shape[1:])) for name, value in values.items()
            }

    def _make_room(self, size: int) -> None:
        """Have slots for ``size`` examples: a budget is taken up as it is used, at most twice."""
        for name, column in self._columns.items():
            if len(column) < size:
                room = min(self.capacity, max(size, 2 * len(column), _FIRST_SLOTS))
                grown = column.new_zeros((room, *column.shape[1:]))
                grown[: self.size] = column[: self.size]
                self._columns[name] = grown

    def _check_columns(self, values: dict[str, Tensor]) -> None:
        if values.keys() != self._columns.keys():
            raise InputError(f"this memory stores {list(self._columns)}, not {list(values)}")
        column, x = self._columns["x"], values["x"]
        if column.shape[1:] != x.shape[1:] or column.dtype != x.dtype:
            raise InputError(
                f"examples changed from {list(column.shape[1:])} {column.dtype} "
                f"to {list(x.shape[1:])} {x.dtype}"
            )

    def state(self) -> State:
        """The live examples; free slots are not saved."""
        tensors = {name: self[name].clone() for name in self._columns}
        return State(tensors, {"capacity": self.capacity, "columns": list(tensors)})

    def check(self, state: State) -> None:
        """Refuse a state that this store cannot hold."""
        if state.meta.get("capacity") != self.capacity:
            raise StateMismatch(
                f"the state has a memory of {state.meta.get('capacity')} examples, "
                f"this learner one of {self.capacity}"
            )
        if not set(_OWN) <= set(state.meta["columns"]) == state.tensors.keys():
            raise StateMismatch(f"the state's memory has the columns {sorted(state.tensors)}")
        if not all(column.ndim for column in state.tensors.values()):
            raise StateMismatch("the state's memory has a column without examples")
        for name in ("y", "task"):
            column = state.tensors[name]
            if column.dtype != torch.int64 or column.ndim != 1:
                raise StateMismatch(
                    f"the state's memory has {name} of {list(column.shape)} {column.dtype}"
                )
        lengths = {len(column) for column in state.tensors.values()}
        if len(lengths) != 1 or max(lengths) > self.capacity:
            raise StateMismatch(f"the state's memory columns have lengths {sorted(lengths)}")

    def load(self, state: State) -> None:
        """Hold exactly what ``state`` holds."""
        self._columns = _empty()
        self._show(0)
        self.append(**{name: state.tensors[name] for name in state.meta["columns"]})


_OWN = ("x", "y", "task")
_FIRST_SLOTS = 64


def _empty() -> dict[str, Tensor]:
    labels = torch.empty(0, dtype=torch.int64)
    return {"x": torch.empty(0), "y": labels, "task": labels}


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()
