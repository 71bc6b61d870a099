"""Rings per class against one deque for each class."""

from collections import deque

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.memory import MemoryStore, write_rings

N_CLASSES = 4
steps = st.lists(
    st.tuples(
        st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=7),  # a batch's classes
        st.lists(st.integers(0, 1), min_size=N_CLASSES, max_size=N_CLASSES),  # quotas shrink by
    ),
    min_size=1,
    max_size=9,
)


def write_by_slot(store, x, y, task, arrived, quota):
    """Wrong: of a full class the example in its first slot goes, whenever it came."""
    for i, column in enumerate(y.tolist()):
        own = (store.y == column).nonzero().flatten()
        slot = own[:1] if len(own) >= quota[column] else torch.tensor([store.size])
        one = slice(i, i + 1)
        store.write(slot, x[one], y[one], task[one], arrived=arrived[one])


def check_rings(write, steps, quota):
    """After each batch the store holds the last examples of each class, whole and aligned."""
    store = MemoryStore(sum(quota))
    rings = [deque(maxlen=size) for size in quota]
    count = 0
    for labels, shrink in steps:
        quota = [max(size - less, 0) for size, less in zip(quota, shrink, strict=True)]
        rings = [deque(ring, maxlen=size) for ring, size in zip(rings, quota, strict=True)]
        y = torch.tensor(labels)
        serial = torch.arange(count, count + len(y))
        count += len(y)
        write(store, serial[:, None].float(), y, serial + 1000, serial, torch.tensor(quota))
        for number, column in zip(serial.tolist(), labels, strict=True):
            rings[column].append(number)
        assert sorted(store.x.flatten().long().tolist()) == sorted(n for r in rings for n in r)
        for number, column, task, arrived in zip(
            store.x.flatten().long().tolist(),
            store.y.tolist(),
            store.task.tolist(),
            store["arrived"].tolist() if store.size else [],
            strict=True,
        ):
            assert number in rings[column]
            assert task == number + 1000
            assert arrived == number


@given(steps=steps, quota=st.lists(st.integers(0, 4), min_size=N_CLASSES, max_size=N_CLASSES))
def test_the_store_holds_the_last_examples_of_each_class(steps, quota):
    check_rings(write_rings, steps, quota)


def test_the_oldest_goes_first_not_the_first_slot():
    batches = [([0, 0], [0] * 4), ([0], [0] * 4), ([0], [0] * 4)]
    check_rings(write_rings, batches, [2, 0, 0, 0])
    with pytest.raises(AssertionError):
        check_rings(write_by_slot, batches, [2, 0, 0, 0])
