"""The joint stream: the same data and questions, pooled, shuffled, and honestly not single pass."""

from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import SecondRead
from deepccg.methods import SGD
from deepccg.networks import Flatten
from deepccg.streams import Cursor, JointStream, Split, build_stream


def data_of(classes: int, per_class: int) -> Split:
    y = np.repeat(np.arange(classes), per_class)
    x = np.arange(len(y), dtype=np.float32)[:, None] * np.ones(2, dtype=np.float32)
    return Split(x, y)


def online(kind: str, classes: int = 5, per_class: int = 6, seed: int = 0):
    return build_stream(
        kind, data_of(classes, per_class), classes_per_task=2, batch_size=4, seed=seed
    )


@given(
    kind=st.sampled_from(["disjoint", "shifting-window"]),
    passes=st.integers(1, 3),
    batch_size=st.integers(1, 9),
    seed=st.integers(0, 50),
)
def test_every_example_comes_once_per_pass_with_the_task_it_had(kind, passes, batch_size, seed):
    stream = online(kind, seed=seed)
    expected = Counter(
        (int(row), stream.task_of(i).id) for i in range(len(stream)) for row in stream.indices(i)
    )
    joint = JointStream(stream, passes=passes, batch_size=batch_size, seed=seed)
    assert joint.tasks == stream.tasks
    assert joint.classes == stream.classes
    per_pass = -(-stream.examples // batch_size)
    assert len(joint) == passes * per_pass
    for begin in range(0, len(joint), per_pass):
        came = Counter()
        for i in range(begin, begin + per_pass):
            batch = joint[i]
            assert batch.task is None
            assert len(batch) <= batch_size
            came.update(
                (int(row), task.id) for row, task in zip(joint.indices(i), batch.tasks, strict=True)
            )
            assert batch.x[:, 0].tolist() == joint.indices(i).tolist()
        assert came == expected


def test_tasks_are_mixed_within_batches_and_passes_differ():
    joint = JointStream(online("disjoint", 6, 50), passes=2, batch_size=10)
    tasks = [{task.id for task in joint[i].tasks} for i in range(len(joint))]
    assert np.mean([len(found) for found in tasks]) > 2
    half = len(joint) // 2
    assert [joint.indices(i).tolist() for i in range(half)] != [
        joint.indices(half + i).tolist() for i in range(half)
    ]


def test_a_pool_of_all_data_has_no_tasks_and_keeps_the_tested_ones():
    window, everything = online("shifting-window"), online("disjoint")
    joint = JointStream(window, pool=everything, passes=2)
    assert window.examples < everything.examples
    assert joint.tasks == window.tasks
    rows = Counter(int(row) for i in range(len(joint)) for row in joint.indices(i))
    assert set(rows.values()) == {2}
    assert len(rows) == everything.examples
    assert all(joint[i].task is None and joint[i].tasks is None for i in range(len(joint)))


def test_a_cursor_allows_one_read_per_pass_and_no_more():
    joint = JointStream(online("disjoint"), passes=2)
    cursor = Cursor(joint)
    assert sum(len(batch) for batch in cursor) == cursor.reads == 2 * 30
    joint.passes = 1  # as if it claimed to be online
    with pytest.raises(SecondRead, match="repeats an example"):
        list(Cursor(joint))


def test_pooled_examples_are_masked_to_their_own_tasks():
    """Rows of the head outside the tasks present get no gradient."""
    stream = online("disjoint", 6, 10)
    joint = JointStream(stream, batch_size=3, seed=1)
    learner = SGD(Flatten(2), classes=stream.classes)
    for i in range(5):
        batch = joint[i]
        before = learner.head.weight.detach().clone()
        learner.learn(batch)
        moved = (learner.head.weight.detach() != before).any(dim=1)
        allowed = {label for task in batch.tasks for label in task.classes}
        assert {label for label, m in zip(learner.classes, moved, strict=True) if m} <= allowed
        assert torch.isfinite(learner.head.weight).all()
