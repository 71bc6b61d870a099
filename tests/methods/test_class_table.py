"""Columns, masks, arrival order: the table every method reads."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import Batch, InputError, State, StateMismatch, Task
from deepccg.learners.class_table import OPEN_TASK, ClassTable


def batch_of(labels: list[int], task: Task | None = None) -> Batch:
    return Batch(torch.zeros(len(labels), 2), torch.tensor(labels), task)


def meet(outputs: ClassTable, labels: list[int], task: Task | None = None) -> tuple[list[int], int]:
    """Check and observe a batch, as every learner does."""
    batch = batch_of(labels, task)
    outputs.begins_task(batch)
    columns, task_idx = outputs.observe(batch)
    assert len(set(task_idx.tolist())) == 1
    return columns.tolist(), int(task_idx[0])


def labels_allowed(outputs: ClassTable, kind: str, row: int) -> set[int]:
    mask = outputs.mask(kind, torch.tensor([row]))[0]
    return {label for label, allowed in zip(outputs.classes, mask, strict=True) if allowed}


def test_columns_follow_first_appearance_and_tasks_name_theirs_at_once():
    outputs = ClassTable([4])
    columns, row = meet(outputs, [9, 2, 9])
    assert outputs.classes == [4, 9, 2]
    assert columns == [1, 2, 1]
    assert row == OPEN_TASK
    columns, row = meet(outputs, [7], Task(5, (8, 7)))
    assert outputs.classes == [4, 9, 2, 8, 7]
    assert (columns, row) == ([4], 1)
    assert outputs.seen.tolist() == [0, 2, 1, 0, 1]


def test_arrival_is_the_order_of_first_examples_not_of_declaration():
    outputs = ClassTable([0, 1, 2, 3])
    meet(outputs, [2], Task(0, (3, 2)))
    meet(outputs, [0, 3, 2])
    meet(outputs, [5, 1])
    assert [outputs.classes[column] for column in outputs.arrival] == [2, 0, 3, 5, 1]


def test_masks_of_overlapping_windows_differ_for_the_same_class():
    outputs = ClassTable()
    _, first = meet(outputs, [1, 2], Task(0, (1, 2)))
    _, second = meet(outputs, [2, 3], Task(1, (2, 3)))
    assert labels_allowed(outputs, "task", first) == {1, 2}
    assert labels_allowed(outputs, "task", second) == {2, 3}
    for row in (first, second):
        assert labels_allowed(outputs, "seen", row) == {1, 2, 3}


def test_task_mask_holds_classes_to_come_and_seen_mask_does_not():
    outputs = ClassTable([50])
    _, row = meet(outputs, [1], Task(0, (1, 2)))
    assert labels_allowed(outputs, "task", row) == {1, 2}
    assert labels_allowed(outputs, "seen", row) == {1}
    assert labels_allowed(outputs, "all", row) == {50, 1, 2}


def test_open_task_means_all_classes_seen_whenever_it_is_asked():
    outputs = ClassTable([50])
    _, row = meet(outputs, [1])
    assert labels_allowed(outputs, "task", row) == {1}
    meet(outputs, [2], Task(0, (2, 3)))
    assert labels_allowed(outputs, "task", row) == {1, 2}


def test_refused_batches_leave_no_trace():
    outputs = ClassTable()
    meet(outputs, [1, 2], Task(0, (1, 2)))
    before = outputs.state()
    with pytest.raises(InputError, match=r"labels \[3\] are not among"):
        meet(outputs, [3], Task(7, (8, 9)))
    with pytest.raises(InputError, match="other classes before"):
        meet(outputs, [1], Task(0, (1, 4)))
    assert outputs.state() == before


def test_a_task_may_list_its_classes_in_another_order():
    outputs = ClassTable()
    _, first = meet(outputs, [1], Task(0, (1, 2)))
    _, again = meet(outputs, [2], Task(0, (2, 1), batches=3))
    assert first == again


@given(
    st.lists(
        st.tuples(st.integers(0, 4), st.lists(st.integers(0, 2), min_size=1, max_size=5)),
        max_size=8,
    ),
    st.lists(st.integers(0, 20), unique=True, max_size=4),
)
def test_any_stream_keeps_its_books(stream, declared):
    """Against plain Python books: labels, counts, arrival and every task's classes."""
    outputs = ClassTable(declared)
    counts: dict[int, int] = {}
    rows: dict[int, int] = {}
    for window, picks in stream:
        task = None if window == 4 else Task(window, (window, window + 1, window + 2))
        labels = [window + pick for pick in picks]
        before = list(outputs.classes)
        columns, row = meet(outputs, labels, task)
        for label in labels:
            counts[label] = counts.get(label, 0) + 1
        assert outputs.classes[: len(before)] == before
        assert [outputs.classes[column] for column in columns] == labels
        assert rows.setdefault(window, row) == row
    assert [outputs.classes[column] for column in outputs.arrival] == list(counts)
    assert dict(zip(outputs.classes, outputs.seen.tolist(), strict=True)) == {
        label: counts.get(label, 0) for label in outputs.classes
    }
    for window, row in rows.items():
        expected = set(counts) if window == 4 else {window, window + 1, window + 2}
        assert labels_allowed(outputs, "task", row) == expected

    copied = ClassTable()
    state = State({}, json.loads(json.dumps(outputs.state().meta)))
    copied.check(state)
    copied.load(state)
    assert copied.state() == outputs.state()
    assert all(
        labels_allowed(copied, "task", row) == labels_allowed(outputs, "task", row)
        for row in rows.values()
    )


def test_a_task_begins_when_its_id_changes():
    outputs = ClassTable()
    first, second = Task(0, (1, 2)), Task(1, (2, 3))
    came = [None, None, first, first, second, first, None]
    begun = []
    for task in came:
        begun.append(outputs.begins_task(batch_of([2], task)))
        outputs.observe(batch_of([2], task))
    assert begun == [False, False, True, False, True, True, True]


def test_pooled_examples_keep_their_own_tasks_and_begin_none():
    outputs = ClassTable()
    tasks = (Task(0, (1, 2)), Task(1, (2, 3)), Task(0, (1, 2)))
    pooled = Batch(torch.zeros(3, 2), torch.tensor([2, 2, 1]), tasks=tasks)
    assert not outputs.begins_task(pooled)
    _, task_idx = outputs.observe(pooled)
    assert task_idx.tolist() == [1, 2, 1]
    assert not outputs.begins_task(pooled)
    wrong = Batch(torch.zeros(2, 2), torch.tensor([2, 3]), tasks=tasks[:2][::-1])
    with pytest.raises(InputError, match=r"labels \[3\] are not among the classes \[1, 2\]"):
        outputs.begins_task(wrong)


@pytest.mark.parametrize(
    "damage",
    [{"seen": [1]}, {"arrival": [9]}, {"tasks": [[0, [0, 5]]]}, {"classes": []}, {"current": 2}],
)
def test_state_that_does_not_fit_together_is_refused(damage):
    outputs = ClassTable()
    meet(outputs, [1, 2], Task(0, (1, 2)))
    with pytest.raises(StateMismatch, match="do not fit together"):
        outputs.check(State({}, {**outputs.state().meta, **damage}))
