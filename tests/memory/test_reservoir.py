"""Reservoirs keep every example with the same probability; wrong ones are told apart."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from deepccg.gaussian import Candidates
from deepccg.memory import (
    MemoryStore,
    candidates_of,
    class_balanced_reservoir,
    replace,
    reservoir_slots,
)

LENGTH, CAPACITY, STREAMS = 50, 10, 2500


def batch_sizes(rng: np.random.Generator) -> list[int]:
    """Batches of 1 to 10 examples that fill a stream."""
    sizes: list[int] = []
    while (left := LENGTH - sum(sizes)) > 0:
        sizes.append(min(int(rng.integers(1, 11)), left))
    return sizes


def simulate(slots_for, seed: int) -> np.ndarray:
    """How often each position of a stream is in memory at its end, ``[LENGTH]``."""
    rng = np.random.default_rng(seed)
    counts = np.zeros(LENGTH, dtype=int)
    for _ in range(STREAMS):
        memory, seen = np.full(CAPACITY, -1), 0
        for size in batch_sizes(rng):
            for offset, slot in enumerate(slots_for(seen, size)):
                if slot >= 0:
                    memory[slot] = seen + offset
            seen += size
        counts[memory] += 1
    return counts


def p_value(counts: np.ndarray, streams: int, kept: int) -> float:
    """Chi-square for equal inclusion when each stream keeps exactly ``kept`` positions.

    The smaller of two: over single positions, and over fifths of the stream, which sees slow
    trends sharper. Positions of one stream exclude each other: with p the share kept, their
    covariance is p(1-p) L/(L-1) (I - 11'/L).
    """
    length = len(counts)
    share = kept / length
    variance = streams * share * (1 - share) * length / (length - 1)
    surplus = counts - streams * share
    values = []
    for size in (1, length // 5) if length % 5 == 0 else (1,):
        block = surplus.reshape(-1, size).sum(axis=1)
        values.append(chi2.sf(np.sum(block**2) / (size * variance), len(block) - 1))
    return float(min(values))


@pytest.fixture(scope="module")
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def test_every_position_is_kept_equally_often(generator):
    counts = simulate(
        lambda seen, size: reservoir_slots(seen, CAPACITY, size, generator).tolist(), seed=1
    )
    assert p_value(counts, STREAMS, CAPACITY) > 1e-3


def drawn_from_n(rng: np.random.Generator):
    """Off by one: the slot is drawn from {0, ..., n - 1}."""
    return lambda seen, size: [
        n if n < CAPACITY else _if_room(int(rng.integers(n))) for n in range(seen, seen + size)
    ]


def same_n_for_the_batch(rng: np.random.Generator):
    """All examples of a batch use the count from before it."""
    return lambda seen, size: [
        n if n < CAPACITY else _if_room(int(rng.integers(seen + 1)))
        for n in range(seen, seen + size)
    ]


def _if_room(slot: int) -> int:
    return slot if slot < CAPACITY else -1


@pytest.mark.parametrize("wrong", [drawn_from_n, same_n_for_the_batch])
def test_wrong_reservoirs_are_told_apart(wrong):
    counts = simulate(wrong(np.random.default_rng(2)), seed=1)
    assert p_value(counts, STREAMS, CAPACITY) < 1e-6


@given(st.integers(0, 30), st.integers(0, 12), st.integers(1, 12), st.integers(0, 2**31))
def test_slots_fill_in_order_and_have_one_owner(seen, capacity, count, seed):
    slots = reservoir_slots(seen, capacity, count, torch.Generator().manual_seed(seed))
    used = [slot for slot in slots.tolist() if slot >= 0]
    assert len(slots) == count
    assert len(set(used)) == len(used)
    assert all(slot < capacity for slot in used)
    assert set(range(seen, min(seen + count, capacity))) <= set(used)  # no gap behind the size


def class_streams(seen_for, seed: int) -> np.ndarray:
    """Reselect forty classes at once, batch by batch, as DeepCCG does; count kept positions."""
    classes, quota, length, runs = 40, 6, 30, 50
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    counts = np.zeros(length, dtype=int)
    quotas = torch.full((classes,), quota)
    for _ in range(runs):
        store = MemoryStore(classes * quota)
        arrived = 0
        while arrived < length:
            size = min(int(rng.integers(1, 6)), length - arrived)
            position = torch.arange(arrived, arrived + size).repeat(classes)
            y = torch.arange(classes).repeat_interleave(size)
            index = candidates_of(range(classes), store, y)
            seen = torch.full((classes,), seen_for(arrived, store.size // classes))
            z = torch.zeros(*index.real.shape, 1)
            real, stored = torch.from_numpy(index.real), torch.from_numpy(index.stored)
            candidates = Candidates(z, real, stored, z[:, 0], quotas, seen)
            keep = class_balanced_reservoir(candidates, generator)
            freed, admitted = index.changes(keep.numpy(), store.size)
            batch = {"x": position[:, None], "y": y, "task": torch.zeros_like(y)}
            replace(store, freed, batch, admitted)
            arrived += size
        assert store.size == classes * quota
        counts += np.bincount(store.x.flatten(), minlength=length)
    return counts


def test_every_example_of_a_class_is_kept_equally_often():
    counts = class_streams(lambda arrived, _: arrived, seed=0)
    assert p_value(counts, streams=2000, kept=6) > 1e-3


def test_counting_the_stored_instead_of_the_seen_is_told_apart():
    counts = class_streams(lambda _, stored: stored, seed=0)
    assert p_value(counts, streams=2000, kept=6) < 1e-6


def test_a_shrinking_quota_forgets_at_random():
    """Six stored, quota now two, one more arrives: each of the seven seen stays with 2/7."""
    runs = 4000
    real = torch.ones(runs, 7, dtype=torch.bool)
    stored = real.clone()
    stored[:, 6] = False
    z = torch.zeros(runs, 7, 1)
    quota, seen = torch.full((runs,), 2), torch.full((runs,), 6)
    candidates = Candidates(z, real, stored, z[:, 0], quota, seen)
    keep = class_balanced_reservoir(candidates, torch.Generator().manual_seed(3))
    assert keep.sum(dim=1).unique().tolist() == [2]
    assert p_value(keep.sum(dim=0).numpy(), runs, 2) > 1e-3
