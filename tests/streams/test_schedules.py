from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepccg.core import InputError
from deepccg.streams import (
    SCHEDULES,
    Cursor,
    Split,
    Stream,
    build_stream,
    default_classes_per_task,
    disjoint,
    shifting_window,
)


def make_split(sizes: list[int]) -> Split:
    """Class c has ``sizes[c]`` examples, interleaved; each example's vector is its row."""
    y = np.repeat(np.arange(len(sizes)), sizes)
    y = np.random.default_rng(0).permutation(y)
    return Split(np.arange(len(y), dtype=np.float32)[:, None], y)


def task_rows(stream: Stream) -> list[np.ndarray]:
    """The rows of each task, in order."""
    steps = {task.id: [] for task in stream.tasks}
    for i in range(len(stream)):
        steps[stream.task_of(i).id].append(stream.indices(i))
    return [np.concatenate(rows) for rows in steps.values()]


def all_rows(stream: Stream) -> np.ndarray:
    return np.concatenate([stream.indices(i) for i in range(len(stream))])


@st.composite
def schedule_fields(draw) -> tuple[list[int], dict[str, int]]:
    sizes = draw(st.lists(st.integers(1, 15), min_size=1, max_size=8))
    fields = {
        "classes_per_task": draw(st.integers(1, len(sizes))),
        "examples_per_class": draw(st.integers(1, 20)),
        "batch_size": draw(st.integers(1, 7)),
        "seed": draw(st.integers(0, 2**32)),
    }
    return sizes, fields


@given(schedule_fields())
def test_disjoint_uses_each_class_once_up_to_the_cap(given_fields) -> None:
    sizes, fields = given_fields
    split = make_split(sizes)
    stream = disjoint(split, **fields)
    per_task, cap = fields["classes_per_task"], fields["examples_per_class"]
    assert sorted(stream.classes) == list(range(len(sizes)))
    assert [len(task.classes) for task in stream.tasks[:-1]] == [per_task] * (len(stream.tasks) - 1)
    assert len(stream.tasks[-1].classes) == len(sizes) % per_task or per_task
    for task, rows in zip(stream.tasks, task_rows(stream), strict=True):
        assert Counter(split.y[rows]) == {c: min(sizes[c], cap) for c in task.classes}
    assert len(np.unique(all_rows(stream))) == stream.examples
    _check_batches(stream, fields["batch_size"])


@given(schedule_fields())
def test_every_window_has_the_same_number_of_each_of_its_classes(given_fields) -> None:
    sizes, fields = given_fields
    split, length = make_split(sizes), fields["classes_per_task"]
    n = min(*sizes, fields["examples_per_class"], 10**9) // length
    if n == 0:
        with pytest.raises(InputError, match="needs at least"):
            shifting_window(split, **fields)
        return
    stream = shifting_window(split, **fields)
    k = len(sizes)
    assert len(stream.tasks) == k - length + 1
    assert stream.examples == (k - length + 1) * length * n
    rows = task_rows(stream)
    for task, mine in zip(stream.tasks, rows, strict=True):
        assert Counter(split.y[mine]) == dict.fromkeys(task.classes, n)
    # Disjoint pairwise, not only in total.
    assert len(set().union(*(map(tuple, rows)))) == sum(map(len, rows))
    order = stream.classes
    for i, (now, then) in enumerate(pairwise(stream.tasks)):
        assert set(then.classes) == set(now.classes) - {order[i]} | {order[i + length]}
    totals = Counter(split.y[all_rows(stream)])
    windows = [min(p, length, k - length + 1, k - p + 1) for p in range(1, k + 1)]
    assert [totals[c] for c in order] == [n * w for w in windows]
    _check_batches(stream, fields["batch_size"])


def _check_batches(stream: Stream, batch_size: int) -> None:
    """Full batches, except that a task's last may be smaller; the cursor accepts them all."""
    for task, rows in zip(stream.tasks, task_rows(stream), strict=True):
        lengths = [len(stream.indices(i)) for i in range(len(stream)) if stream.task_of(i) == task]
        assert lengths[:-1] == [batch_size] * (len(lengths) - 1)
        assert 1 <= lengths[-1] <= batch_size
        assert task.batches == len(lengths) == -(-len(rows) // batch_size)
    assert sum(len(batch) for batch in Cursor(stream)) == stream.examples


@pytest.mark.parametrize(
    ("classes", "length", "tasks", "n", "examples", "batches"),
    [(10, 2, 9, 250, 4_500, 450), (100, 5, 96, 100, 48_000, 4_800)],
)
def test_the_papers_windows(classes, length, tasks, n, examples, batches) -> None:
    split = make_split([500] * classes)
    stream = shifting_window(split, classes_per_task=length)
    assert (len(stream.tasks), stream.examples, len(stream)) == (tasks, examples, batches)
    totals = Counter(split.y[all_rows(stream)])
    rising = [n * (p + 1) for p in range(length)]
    assert [totals[c] for c in stream.classes[:length]] == rising
    assert [totals[c] for c in stream.classes[-length:]] == rising[::-1]
    assert max(totals.values()) == 500


@pytest.mark.parametrize(("classes", "tasks", "examples"), [(10, 5, 5_000), (100, 20, 50_000)])
def test_the_papers_disjoint_tasks(classes, tasks, examples) -> None:
    stream = disjoint(
        make_split([600] * classes), classes_per_task=default_classes_per_task(classes)
    )
    assert (len(stream.tasks), stream.examples) == (tasks, examples)
    assert {task.batches for task in stream.tasks} == {examples // tasks // 10}


OF_CLASSES = [kind for kind in SCHEDULES if kind != "domain"]  # tasks that differ in their classes


@pytest.mark.parametrize("imbalance", [None, 5])
@pytest.mark.parametrize("kind", SCHEDULES)
def test_the_seed_decides_everything(kind: str, imbalance: int | None) -> None:
    split = Split(np.random.default_rng(0).random((240, 4)), np.repeat(np.arange(6), 40))
    first = build_stream(kind, split, seed=3, imbalance=imbalance)
    same = build_stream(kind, split, seed=3, imbalance=imbalance)
    other = build_stream(kind, split, seed=4, imbalance=imbalance)
    assert first.fingerprint() == same.fingerprint()
    assert first.fingerprint() != other.fingerprint()
    assert first.classes != other.classes


@settings(max_examples=20)
@given(st.integers(0, 1000))
def test_the_classes_of_a_task_are_mixed(seed: int) -> None:
    split = make_split([40, 40])
    stream = disjoint(split, classes_per_task=2, batch_size=40, seed=seed)
    assert len(set(split.y[stream.indices(0)])) == 2


def test_every_class_comes_first_for_some_seed() -> None:
    split = make_split([2] * 3)
    firsts = {disjoint(split, classes_per_task=1, seed=seed).classes[0] for seed in range(30)}
    assert firsts == {0, 1, 2}


def test_the_order_of_classes_can_be_given() -> None:
    split = make_split([4] * 5)
    stream = disjoint(split, classes_per_task=2, class_order=[3, 1, 4])
    assert stream.classes == (3, 1, 4)
    assert [task.classes for task in stream.tasks] == [(3, 1), (4,)]
    window = shifting_window(split, classes_per_task=2, class_order=[3, 1, 4])
    assert [task.classes for task in window.tasks] == [(3, 1), (1, 4)]


def test_a_given_order_keeps_the_examples_of_a_class() -> None:
    split = make_split([20] * 3)
    streams = [
        disjoint(split, classes_per_task=1, examples_per_class=5, class_order=order)
        for order in ([0, 1, 2], [2, 0, 1])
    ]
    first, second = (
        {stream.tasks[i].classes: set(rows) for i, rows in enumerate(task_rows(stream))}
        for stream in streams
    )
    assert first == second


@pytest.mark.parametrize("kind", OF_CLASSES)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"classes_per_task": 4}, "only 3 classes"),
        ({"classes_per_task": 0}, "classes_per_task must be at least 1"),
        ({"classes_per_task": 1, "batch_size": 0}, "batch_size must be at least 1"),
        ({"classes_per_task": 1, "examples_per_class": 0}, "examples_per_class must be at least"),
        ({"classes_per_task": 1, "class_order": [0, 0]}, "twice"),
        ({"classes_per_task": 1, "class_order": [0, 3]}, "class 3 has no examples"),
        ({"classes_per_task": 1, "class_order": [-1]}, "class -1 has no examples"),
    ],
)
def test_impossible_fields_are_refused(kind: str, fields: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        build_stream(kind, make_split([4, 4, 4]), **fields)


@pytest.mark.parametrize("kind", OF_CLASSES)
def test_an_empty_class_is_refused(kind: str) -> None:
    with pytest.raises(InputError, match="class 1 has no examples"):
        build_stream(kind, make_split([4, 0, 4]), classes_per_task=2)


def test_a_window_longer_than_its_scarcest_class_is_refused() -> None:
    with pytest.raises(InputError, match="class 1 has 2"):
        shifting_window(make_split([9, 2, 9]), classes_per_task=3)
    with pytest.raises(InputError, match="examples_per_class is 2"):
        shifting_window(make_split([9, 9, 9]), classes_per_task=3, examples_per_class=2)


def test_an_unknown_schedule_is_refused() -> None:
    with pytest.raises(InputError, match="disjoint, shifting-window"):
        build_stream("sliding", make_split([1]), classes_per_task=1)
