"""Replay from few tasks or classes: each equally likely, few at a time."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deepccg.memory import draw_classes, draw_grouped

DRAWS = 2000


def task_indices(*sizes: int) -> torch.Tensor:
    """Task indices of a memory, tasks interleaved as slots that are reused would have them."""
    ordered = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    return ordered[torch.randperm(len(ordered), generator=torch.Generator().manual_seed(1))]


def inclusions(task: torch.Tensor, count: int, groups: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    total = torch.zeros(len(task))
    for _ in range(DRAWS):
        total[draw_grouped(task, count, groups, generator)] += 1
    return total


@pytest.mark.parametrize(
    ("sizes", "count", "groups"),
    [
        ((10,) * 6, 10, 2),
        ((1, 2, 3, 30, 4), 10, 2),  # tasks smaller than a block, one larger than all the rest
        ((0, 7, 0, 9), 5, 3),  # tasks without a stored example; more blocks than tasks
        ((40,), 10, 2),  # no tasks: one open task
        ((5, 5, 5), 14, 2),  # nearly all of memory
        ((9, 3, 8), 3, 7),  # more blocks than examples
    ],
    ids=str,
)
def test_each_stored_example_is_equally_likely(sizes, count, groups):
    """Chi-square of the inclusion counts; draws of one call exclude each other, which only
    makes the counts steadier than independent ones: the bound is on the safe side but for the
    clusters, whose members come together (at most count/groups of them)."""
    task = task_indices(*sizes)
    found = inclusions(task, count, groups)
    share = count / len(task)
    assert found.sum() == DRAWS * count
    cluster = -(-count // groups)
    statistic = float(((found - DRAWS * share) ** 2).sum() / (DRAWS * share * (1 - share)))
    assert statistic / cluster < stats.chi2.ppf(0.9999, len(task) - 1)
    deviation = (found / DRAWS - share).abs().max().item()
    assert deviation < 5 * (share * (1 - share) / DRAWS) ** 0.5


def test_each_task_is_met_as_often_as_its_size_says():
    """The same, task by task: inclusion of any member, against an exact enumeration of offsets."""
    task = task_indices(4, 12, 8)
    count, groups = 6, 2
    sizes = [4, 12, 8]
    generator = torch.Generator().manual_seed(3)
    drawn = Counter()
    for _ in range(DRAWS):
        drawn.update(task[draw_grouped(task, count, groups, generator)].tolist())
    for row, size in enumerate(sizes):
        expected = DRAWS * count * size / sum(sizes)
        assert drawn[row] == pytest.approx(expected, abs=5 * (DRAWS * count * count / 4) ** 0.5)


def test_few_tasks_are_met():
    task = task_indices(*(50,) * 20)
    generator = torch.Generator().manual_seed(0)
    for groups in (1, 2, 3):
        met = [len(task[draw_grouped(task, 10, groups, generator)].unique()) for _ in range(2000)]
        block = 10 / groups
        assert sum(met) / len(met) == pytest.approx(groups * (1 + (block - 1) / 50), abs=0.05)
        assert max(met) <= 2 * groups


@given(
    st.lists(st.integers(0, 6), min_size=1, max_size=6),
    st.integers(0, 40),
    st.integers(1, 6),
    st.integers(0, 99),
)
def test_slots_are_distinct_and_as_many_as_asked(sizes, count, groups, seed):
    task = task_indices(*sizes)
    generator = torch.Generator().manual_seed(seed)
    drawn = draw_grouped(task, count, groups, generator).tolist()
    assert len(set(drawn)) == len(drawn) == min(count, len(task))
    assert all(0 <= slot < len(task) for slot in drawn)


def test_slots_of_a_task_come_in_any_company():
    """Within a task every pair is equally likely."""
    task = task_indices(6, 6)
    generator = torch.Generator().manual_seed(0)
    pairs = Counter()
    for _ in range(DRAWS):
        own = [s for s in draw_grouped(task, 2, 1, generator).tolist() if task[s] == 0]
        if len(own) == 2:
            pairs[tuple(sorted(own))] += 1
    assert len(pairs) == 15
    assert stats.chisquare(list(pairs.values())).pvalue > 1e-4


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 3)), max_size=40),
    st.lists(st.integers(0, 12), max_size=4),
    st.integers(0, 12),
    st.booleans(),
)
def test_classes_are_those_needed_and_whole_groups(stored, needed, count, by_task):
    y = torch.tensor([column for column, _ in stored], dtype=torch.int64)
    group = torch.tensor([task for _, task in stored], dtype=torch.int64) if by_task else y
    generator = torch.Generator().manual_seed(0)
    drawn = draw_classes(y, group, torch.tensor(needed, dtype=torch.int64), count, generator)
    own, every = set(needed) & set(y.tolist()), set(y.tolist())
    found = set(drawn.tolist())
    assert drawn.tolist() == sorted(found)
    assert own <= found <= every
    if own != every:  # at least one other group
        assert found != own
    classes_of = [set(y[group == each].tolist()) for each in group.unique()]
    whole = [each for each in classes_of if each <= found]
    assert found == own.union(*whole)
    added = [each for each in whole if not each <= own]
    assert len(found) <= count or any(found == own | each for each in added) or found == own


def test_other_classes_are_equally_likely():
    y = torch.arange(12).repeat_interleave(torch.arange(1, 13))  # however many are stored of each
    generator, times = torch.Generator().manual_seed(0), Counter()
    for _ in range(DRAWS):
        times.update(draw_classes(y, y, torch.tensor([3]), 4, generator).tolist())
    assert times.pop(3) == DRAWS
    assert len(times) == 11
    assert stats.chisquare(list(times.values())).pvalue > 1e-3
