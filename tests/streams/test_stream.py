import numpy as np
import pytest
import torch

from deepccg.core import InputError, SecondRead, Task
from deepccg.streams import Cursor, Stream

LEFT, RIGHT = Task(0, (0, 1)), Task(1, (2,))


@pytest.fixture
def x() -> np.ndarray:
    return np.arange(8 * 3 * 2 * 2, dtype=np.uint8).reshape(8, 3, 2, 2)


@pytest.fixture
def y() -> np.ndarray:
    return np.array([0, 1, 2, 0, 1, 2, 0, 1])


@pytest.fixture
def stream(x: np.ndarray, y: np.ndarray) -> Stream:
    rows, offsets = np.array([3, 0, 4, 1, 5, 2]), np.array([0, 2, 4, 5, 6])
    return Stream(x, y, rows, offsets, [LEFT, LEFT, RIGHT, RIGHT])


def test_batches_hold_the_rows_they_name(stream: Stream, x: np.ndarray, y: np.ndarray) -> None:
    assert len(stream) == 4
    assert stream.examples == 6
    expected = [[3, 0], [4, 1], [5], [2]]
    for i, rows in enumerate(expected):
        batch = stream[i]
        assert torch.equal(batch.x, torch.from_numpy(x[rows]))
        assert batch.x.dtype == torch.uint8
        assert batch.y.tolist() == y[rows].tolist()
        assert stream.indices(i).tolist() == rows


def test_indexing_is_that_of_a_list(stream: Stream) -> None:
    assert torch.equal(stream[-1].x, stream[3].x)
    assert stream.task_of(-4) == stream.task_of(0)
    for outside in (4, -5):
        with pytest.raises(IndexError, match="4 batches"):
            stream[outside]


def test_tasks_know_their_number_of_batches(stream: Stream) -> None:
    assert stream.tasks == (Task(0, (0, 1), batches=2), Task(1, (2,), batches=2))
    assert stream[2].task == stream.task_of(2) == stream.tasks[1]
    assert stream.classes == (0, 1, 2)


def test_a_batch_is_a_copy_and_the_stream_keeps_its_own_order(x: np.ndarray, y: np.ndarray) -> None:
    rows, offsets = np.array([0, 1]), np.array([0, 2])
    stream = Stream(x, y, rows, offsets, [LEFT])
    before = x.copy()
    stream[0].x.zero_()
    rows[:] = 2
    assert np.array_equal(x, before)
    assert stream.indices(0).tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        stream.indices(0)[0] = 5
    assert x.flags.writeable  # the caller's array is left alone


def test_vectors_from_a_memory_map(tmp_path) -> None:
    file = tmp_path / "x.npy"
    np.save(file, np.arange(12, dtype=np.float32).reshape(4, 3))
    mapped = np.load(file, mmap_mode="r")
    stream = Stream(mapped, np.zeros(4, dtype=np.int64), np.array([2, 1]), np.array([0, 2]), [LEFT])
    assert stream[0].x.tolist() == [[6, 7, 8], [3, 4, 5]]


@pytest.mark.parametrize(
    ("rows", "offsets", "tasks", "message"),
    [
        ([0, 1], [0, 1], [LEFT], "offsets"),
        ([0, 1], [0, 1, 2], [LEFT], "offsets"),
        ([0, 1], [0, 2, 2], [LEFT, LEFT], "without examples"),
        ([0, 8], [0, 2], [LEFT], "outside its 8 examples"),
        ([0, -1], [0, 2], [LEFT], "outside its 8 examples"),
        ([0, 2], [0, 2], [LEFT], "outside its classes"),
        ([0, 1], [0, 1, 2], [LEFT, Task(0, (1,))], "same id"),
    ],
)
def test_a_stream_that_cannot_be_is_refused(x, y, rows, offsets, tasks, message) -> None:
    with pytest.raises(InputError, match=message):
        Stream(x, y, np.array(rows), np.array(offsets), tasks)


def test_the_fingerprint_differs_between_streams(x: np.ndarray, y: np.ndarray) -> None:
    rows, offsets, tasks = np.array([0, 1, 3]), np.array([0, 2, 3]), [LEFT, LEFT]
    fingerprint = Stream(x, y, rows, offsets, tasks).fingerprint()
    assert Stream(x.copy(), y, rows, offsets, tasks).fingerprint() == fingerprint
    other_y = y.copy()
    other_y[0] = 1
    others = [
        Stream(x, y, np.array([0, 3, 1]), offsets, tasks),
        Stream(x, other_y, rows, offsets, tasks),
        Stream(x, y, rows, np.array([0, 1, 3]), tasks),
        Stream(x, y, rows, offsets, [Task(0, (1, 0))] * 2),
        Stream(x, y, rows, offsets, [LEFT, Task(2, (0, 1))]),
        Stream(x.astype(np.float32), y, rows, offsets, tasks),
        Stream(x[:7], y[:7], rows, offsets, tasks),
        Stream(255 - x, y, rows, offsets, tasks),
    ]
    assert len({fingerprint, *(other.fingerprint() for other in others)}) == len(others) + 1


def test_the_fingerprint_does_not_change_between_versions(stream: Stream) -> None:
    # Checkpoints keep it: whoever changes it makes old runs impossible to resume.
    assert stream.fingerprint() == "dcf7ad5d1fbbda933ba335b6e91ab3be"


def test_a_cursor_hands_out_every_batch_once(stream: Stream) -> None:
    cursor = Cursor(stream)
    assert (cursor.position, cursor.reads) == (0, 0)
    labels = [batch.y.tolist() for batch in cursor]
    assert labels == [[0, 0], [1, 1], [2], [2]]
    assert (cursor.position, cursor.reads) == (4, 6)
    assert list(cursor) == []


def test_a_cursor_resumes_and_counts_what_came_before(stream: Stream) -> None:
    cursor = Cursor(stream, position=2)
    assert cursor.reads == 4
    assert [batch.y.tolist() for batch in cursor] == [[2], [2]]
    for outside in (-1, 5):
        with pytest.raises(InputError, match="outside a stream of 4"):
            Cursor(stream, position=outside)


def test_a_cursor_does_not_go_back(stream: Stream) -> None:
    cursor = Cursor(stream)
    cursor.read(0)
    cursor.read(2)  # skipping is not reading twice
    assert (cursor.position, cursor.reads) == (3, 3)
    for passed in (0, 1, 2):
        with pytest.raises(SecondRead, match=f"batch {passed} was passed"):
            cursor.read(passed)
    for outside in (-1, 4):
        with pytest.raises(IndexError):
            cursor.read(outside)
    assert (cursor.position, cursor.reads) == (3, 3)


@pytest.mark.parametrize("rows", [[0, 1, 3, 0], [0, 0, 1, 3]])
def test_a_cursor_refuses_a_stream_that_repeats_an_example(x, y, rows) -> None:
    stream = Stream(x, y, np.array(rows), np.array([0, 2, 4]), [LEFT, LEFT])
    with pytest.raises(SecondRead, match="single pass"):
        list(Cursor(stream))


def test_a_resumed_cursor_remembers_the_examples_before_it(x, y) -> None:
    stream = Stream(x, y, np.array([0, 1, 3, 0]), np.array([0, 2, 4]), [LEFT, LEFT])
    with pytest.raises(SecondRead, match="batch 1"):
        next(Cursor(stream, position=1))
