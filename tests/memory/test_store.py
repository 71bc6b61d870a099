"""The store against a plain list, over any sequence of writes, appends, removals and reloads."""

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deepccg.core import InputError, State, StateMismatch
from deepccg.memory import MemoryStore


def columns(serials: list[int]):
    """Examples whose picture, class and task all follow from a serial number."""
    number = torch.tensor(serials, dtype=torch.int64)
    x = torch.stack([number % 256, number // 256], dim=1).to(torch.uint8).reshape(-1, 1, 2)
    return x, number % 7, number % 11


class StoreMachine(RuleBasedStateMachine):
    """``self.model`` lists the serial number in each slot."""

    def __init__(self) -> None:
        super().__init__()
        self.next_serial = 0

    @initialize(capacity=st.integers(0, 7))
    def start(self, capacity):
        self.store, self.model = MemoryStore(capacity), []

    def fresh(self, count: int) -> list[int]:
        self.next_serial += count
        return list(range(self.next_serial - count, self.next_serial))

    @rule(count=st.integers(0, 4))
    def append(self, count):
        serials = self.fresh(count)
        if len(self.model) + count > self.store.capacity:
            with pytest.raises(InputError, match="do not fit"):
                self.store.append(*columns(serials))
        else:
            self.store.append(*columns(serials))
            self.model += serials

    @rule(data=st.data())
    def write(self, data):
        """Into any order of some live slots and the next free ones."""
        size = len(self.model)
        room = data.draw(st.integers(0, self.store.capacity - size))
        live = data.draw(st.sets(st.integers(0, size - 1))) if size else set()
        slots = data.draw(st.permutations([*live, *range(size, size + room)]))
        serials = self.fresh(len(slots))
        self.store.write(torch.tensor(slots, dtype=torch.int64), *columns(serials))
        self.model += [-1] * room
        for slot, serial in zip(slots, serials, strict=True):
            self.model[slot] = serial

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data):
        slots = data.draw(st.sets(st.integers(0, len(self.model) - 1)))
        self.store.remove(torch.tensor(sorted(slots), dtype=torch.int64))
        self.model = [serial for slot, serial in enumerate(self.model) if slot not in slots]

    @rule(used=st.booleans())
    def reload(self, used):
        """A saved store continues in another one; the first no longer matters."""
        state = self.store.state()
        other = MemoryStore(self.store.capacity)
        if used and other.capacity:
            other.append(*columns([999]))
        if self.model:
            self.store.x.fill_(255)  # a saved state is a copy
        other.check(state)
        other.load(state)
        for tensor in state.tensors.values():
            tensor.zero_()  # and so is a loaded one
        self.store = other

    @invariant()
    def holds_what_the_list_holds(self):
        x, y, task = columns(self.model)
        assert self.store.size == len(self.model) <= self.store.capacity
        assert self.store.y.tolist() == y.tolist()
        assert self.store.task.tolist() == task.tolist()
        if self.model:
            assert torch.equal(self.store.x, x)
            assert self.store.x.dtype == torch.uint8
        assert self.store.bytes == len(self.model) * (2 + 8 + 8)


TestStoreMachine = StoreMachine.TestCase
TestStoreMachine.settings = settings(stateful_step_count=20)


def test_examples_of_another_shape_or_type_are_refused():
    store = MemoryStore(4)
    store.append(*columns([1, 2]))
    _, y, task = columns([3])
    for x in (torch.zeros(1, 5, dtype=torch.uint8), torch.zeros(1, 1, 2)):
        with pytest.raises(InputError, match="examples changed"):
            store.append(x, y, task)
    assert torch.equal(store.x, columns([1, 2])[0])


def test_a_negative_budget_is_refused():
    with pytest.raises(InputError, match="0 or more"):
        MemoryStore(-1)


def test_states_that_do_not_fit_are_refused():
    store = MemoryStore(3)
    store.append(*columns([1, 2]))
    state = store.state()
    with pytest.raises(StateMismatch, match="memory of 3"):
        MemoryStore(4).check(state)
    ragged = State({**state.tensors, "y": state.tensors["y"][:1]}, state.meta)
    with pytest.raises(StateMismatch, match="lengths"):
        store.check(ragged)
    x, y, task = columns([1, 2, 3, 4])
    with pytest.raises(StateMismatch, match="lengths"):
        store.check(State({"x": x, "y": y, "task": task}, state.meta))
    less = {name: column for name, column in state.tensors.items() if name != "task"}
    for meta in (state.meta, {**state.meta, "columns": ["x", "y"]}):
        with pytest.raises(StateMismatch, match="columns"):
            store.check(State(less, meta))


def test_extra_columns_move_with_their_examples_and_grow():
    store = MemoryStore(4)
    logits = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    store.append(*columns([1, 2, 3]), logits=logits)
    store.remove(torch.tensor([1]))
    assert store["logits"].tolist() == [[1, 2], [5, 6]]
    store.widen("logits", 3)
    store.write(torch.tensor([0]), *columns([4]), logits=torch.tensor([[7.0, 8.0, 9.0]]))
    assert store["logits"].tolist() == [[7, 8, 9], [5, 6, 0]]
    assert store.extra_bytes == {"logits": 24}
    other = MemoryStore(4)
    other.check(store.state())
    other.load(store.state())
    assert torch.equal(other["logits"], store["logits"])
    assert torch.equal(other.x, store.x)
    with pytest.raises(InputError, match="this memory stores"):
        store.append(*columns([5]))
