"""Rewriting the store class by class against a dictionary of lists."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.memory import MemoryStore, candidates_of, replace

N_CLASSES = 4
batches = st.lists(
    st.lists(st.integers(0, N_CLASSES - 1), min_size=1, max_size=6), min_size=1, max_size=8
)


def contents(store: MemoryStore) -> dict[int, set[int]]:
    """The serial numbers stored of each class; picture, class and task must agree."""
    found: dict[int, set[int]] = {c: set() for c in range(N_CLASSES)}
    rows = zip(store.x.flatten().tolist(), store.y.tolist(), store.task.tolist(), strict=True)
    for serial, column, task in rows:
        assert (column, task) == (serial % N_CLASSES, serial // N_CLASSES)
        found[column].add(serial)
    assert sum(map(len, found.values())) == store.size
    return found


@given(batches=batches, quota=st.integers(0, 3), data=st.data())
def test_store_follows_the_dictionary(batches, quota, data):
    store, model = MemoryStore(quota * N_CLASSES), {c: set() for c in range(N_CLASSES)}
    arrived = 0
    for labels in batches:
        y = torch.tensor(labels)
        task = torch.arange(arrived, arrived + len(labels))
        serial = task * N_CLASSES + y
        arrived += len(labels)
        # Some classes without a new example may be reselected too.
        further = data.draw(st.sets(st.integers(0, N_CLASSES - 1)))
        classes = sorted({*labels, *(c for c in further if model[c])})
        index = candidates_of(classes, store, y)
        pool = torch.cat([store.x.flatten().long(), serial])
        keep = torch.zeros(index.real.shape, dtype=torch.bool)
        for k, c in enumerate(classes):
            new = serial[y == c].tolist()
            offered = pool[index.position[k][index.real[k]]].tolist()
            assert set(offered) == model[c] | set(new)
            assert len(offered) == len(model[c]) + len(new)
            assert offered[len(model[c]) :] == new  # stored first, new ones as they came
            assert index.stored[k].sum() == len(model[c])
            kept = data.draw(st.sets(st.sampled_from(range(len(offered))), max_size=quota))
            keep[k, sorted(kept)] = True
            model[c] = {offered[i] for i in kept}
        freed, admitted = index.changes(keep.numpy(), store.size)
        batch = {"x": serial[:, None].float(), "y": y, "task": task}
        replace(store, freed, batch, admitted)
        assert contents(store) == model
        assert store.size <= store.capacity


def test_a_full_store_exchanges_between_classes():
    """One class gives up a place that another takes, without exceeding the budget for a moment."""
    store = MemoryStore(3)
    store.append(torch.tensor([[0.0], [4.0], [8.0]]), torch.zeros(3).long(), torch.arange(3))
    y = torch.tensor([1])
    index = candidates_of([0, 1], store, y)
    keep = torch.tensor([[True, False, True], [True, False, False]])
    freed, admitted = index.changes(keep.numpy(), store.size)
    batch = {"x": torch.tensor([[1.0]]), "y": y, "task": torch.tensor([0])}
    replace(store, freed, batch, admitted)
    assert contents(store) == {0: {0, 8}, 1: {1}, 2: set(), 3: set()}
