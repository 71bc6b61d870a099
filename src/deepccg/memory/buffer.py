"""The memory: fixed-capacity storage of examples, draws for replay, and the reservoir."""

from collections import Counter
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from deepccg.core import InputError, State, StateMismatch


class MemoryStore:
    """At most ``capacity`` examples; the live ones are the first ``size`` slots.

    Examples are kept as they came (uint8 images stay uint8), each with its class column and the
    index of its task in the learner's class table, always moved together.

    Args:
        capacity: The budget, in examples.
        embed: The embedding ``[n, ...] -> [n, D]`` under a network that does not change: each
            example is then embedded once, when it is stored, and kept with it as ``EMBEDDING``.

    >>> store = MemoryStore(capacity=2)
    >>> store.append(torch.zeros(1, 3), torch.tensor([4]), torch.tensor([0]))
    >>> store.size, store.y.tolist()
    (1, [4])
    """

    def __init__(self, capacity: int, embed: Callable[[Tensor], Tensor] | None = None) -> None:
        if capacity < 0:
            raise InputError(f"memory must be 0 or more examples, not {capacity}")
        self.capacity = capacity
        self.embed = embed
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
        """Their task indices ``[M]``."""
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
    def bytes(self) -> int:
        """Bytes held by the stored examples and their labels, without extras."""
        return sum(self[name].nbytes for name in _OWN)

    @property
    def extra_bytes(self) -> dict[str, int]:
        """Bytes held by each extra column."""
        return {name: self[name].nbytes for name in self._columns if name not in _OWN}

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
            task: Their task indices ``[n]``.
            **extras: Further columns ``[n, ...]``, the same ones at every call.
        """
        if len(slots) == 0:
            return
        size = max(self.size, int(slots.max()) + 1)
        if size > self.capacity:
            raise InputError(f"{size} examples do not fit a memory of {self.capacity}")
        values = {"x": x, "y": y, "task": task, **extras}
        if self.embed is not None and EMBEDDING not in values:
            values[EMBEDDING] = self.embed(x)
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

    def clear(self) -> None:
        """Drop all examples, and the room they took."""
        self._columns = _empty()
        self._show(0)

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
        self.clear()
        self.append(**{name: state.tensors[name] for name in state.meta["columns"]})


def draw_uniform(y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` slots (or all) of ``y [M]``, uniformly without replacement."""
    return torch.randperm(len(y), generator=generator)[:count].to(y.device)


def draw_balanced(y: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """``count`` slots (or all) without replacement, each class equally likely at the first draw."""
    count = min(count, len(y))
    if count == 0:
        return y.new_zeros(0)
    weight = 1.0 / torch.bincount(y).clamp(min=1)[y].double()
    return torch.multinomial(weight.cpu(), count, generator=generator).to(y.device)


def draw_grouped(task: Tensor, count: int, groups: int, generator: torch.Generator) -> Tensor:
    """``count`` of M slots (or all) from about ``groups`` random tasks, each slot equally likely.

    The slots, of tasks ``task [M]``, are laid out in a circle, tasks in random order and the slots
    of a task in random order. A pattern of ``groups`` blocks, together ``count`` long and evenly
    spaced, is laid on it at a uniformly random offset; what it covers is drawn. A slot is covered
    at exactly ``count`` of the M offsets, so it is drawn with probability ``count / M``, whatever
    its task, however many or few examples that task has, and however many tasks there are.

    A block of b slots that begins in a task of n reaches beyond it with probability (b - 1)/n at
    most, so tasks of n examples give ``groups (1 + (b - 1)/n)`` of them on average. Of each task
    the slots drawn are a uniformly random subset of its own; with one task that is
    ``draw_uniform``. What changes is only which slots come together.
    """
    size = len(task)
    count = min(count, size)
    if count == 0:
        return task.new_zeros(0)
    groups = min(groups, count)
    place = torch.arange(count)
    block = place * groups // count
    pattern = place + block * (size - count) // groups  # the free places lie between the blocks
    offset = torch.randint(size, (1,), generator=generator)
    sizes = torch.bincount(task.cpu())
    present = sizes.nonzero().flatten()
    order = present[torch.randperm(len(present), generator=generator)]
    covered = torch.searchsorted(sizes[order].cumsum(0), (pattern + offset) % size, right=True)
    number = torch.bincount(covered)
    drawn = []
    for rank in number.nonzero().flatten().tolist():
        own = (task == int(order[rank])).nonzero().flatten()
        chosen = torch.randperm(len(own), generator=generator)[: int(number[rank])]
        drawn.append(own[chosen.to(own.device)])
    return torch.cat(drawn)


def draw_classes(
    y: Tensor, group: Tensor, needed: Tensor, count: int, generator: torch.Generator
) -> Tensor:
    """Columns of stored classes: the ``needed`` ones, and random others.

    There are ``count`` at most, but whatever ``count`` is, all that are needed and one other group.

    Args:
        y: Class column of each stored example, ``[M]``.
        group: What comes whole or not at all, ``[M]``: the class, or a task with its classes.
        needed: Class columns; those that are not stored are left out.
        count: How many in all.
        generator: Decides which of the others.

    >>> y = torch.tensor([0, 1, 2, 2])
    >>> draw_classes(y, y, torch.tensor([2, 5]), 3, torch.Generator()).tolist()
    [0, 1, 2]
    """
    own = set(needed.tolist()) & set(y.tolist())
    chosen, groups = own, torch.unique(group)
    for each in groups[torch.randperm(len(groups), generator=generator)].tolist():
        if len(chosen) >= count and chosen != own:
            break
        more = set(y[group == each].tolist()) | chosen
        if len(more) <= count or chosen == own:
            chosen = more
    return torch.tensor(sorted(chosen), dtype=torch.int64, device=y.device)


def keep_one_per_class(slots: Tensor, y: Tensor, stored: Mapping[int, int]) -> Tensor:
    """Drop one of the ``slots [n]`` of every class drawn entirely: the rest still knows it.

    ``y [M]`` has the class column of each slot, ``stored`` how many slots each class has.
    """
    own = y[slots].tolist()
    drawn = Counter(own)
    exhausted = [column for column, count in drawn.items() if count == stored[column]]
    if not exhausted:
        return slots
    returned = {own.index(column) for column in exhausted}  # the first slot drawn of each
    return slots[[i for i in range(len(own)) if i not in returned]]


def rank_within(group: Tensor, key: Tensor) -> Tensor:
    """The place, from 0, of each of N entries when its group is sorted by ``key``, ``[N]``.

    Args:
        group: A number from 0 up for each entry, ``[N]``.
        key: What is compared, smallest first, ``[N]``; ties keep their order.

    >>> rank_within(torch.tensor([0, 0, 1, 0]), torch.tensor([7, 3, 5, 9])).tolist()
    [1, 0, 0, 2]
    """
    by_key = key.argsort(stable=True)
    by_group = by_key[group[by_key].argsort(stable=True)]
    sizes = torch.bincount(group)
    begins = sizes.cumsum(0) - sizes  # of each group in ``by_group``
    rank = torch.empty_like(group)
    rank[by_group] = torch.arange(len(group), device=group.device) - begins[group[by_group]]
    return rank


def reservoir_slots(seen: int, capacity: int, count: int, generator: torch.Generator) -> Tensor:
    """Slots for ``count`` new examples by Vitter's algorithm R; -1 means not stored.

    The example that arrives after n others goes to slot n while there is room; then a slot is
    drawn uniformly from {0, ..., n}, n + 1 values, and used if it exists. After any number of
    examples each is stored with the same probability. If two examples of a call draw the same
    slot, the later one owns it and the earlier is marked -1.
    """
    order = torch.arange(seen, seen + count, dtype=torch.float64)
    drawn = (torch.rand(count, generator=generator, dtype=torch.float64) * (order + 1)).long()
    slots = torch.where(order < capacity, order.long(), drawn)
    slots = torch.where(slots < capacity, slots, -1)
    later_owner = torch.triu(slots[:, None] == slots[None, :], diagonal=1).any(dim=1)
    return slots.masked_fill(later_owner, -1)


def offer_to_reservoir(
    store: MemoryStore,
    x: Tensor,
    y: Tensor,
    task: Tensor,
    seen: int,
    generator: torch.Generator,
    capacity: int | None = None,
    **extras: Tensor,
) -> None:
    """Offer a batch that comes after ``seen`` other examples to one reservoir over all of them.

    ``capacity`` may be smaller than the store's; ``extras`` are further columns ``[B, ...]``.
    """
    places = store.capacity if capacity is None else capacity
    slots = reservoir_slots(seen, places, len(y), generator)
    stored = slots >= 0
    kept = {name: column[stored] for name, column in extras.items()}
    store.write(slots[stored], x[stored], y[stored], task[stored], **kept)


EMBEDDING = "cached_embedding"  # the memory's column of embeddings that are kept with examples
_OWN = ("x", "y", "task")
_FIRST_SLOTS = 64


def _empty() -> dict[str, Tensor]:
    labels = torch.empty(0, dtype=torch.int64)
    return {"x": torch.empty(0), "y": labels, "task": labels}
