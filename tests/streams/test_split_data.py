from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError, Task
from deepccg.streams import Dataset, Split, cap_per_class, from_arrays, hold_out, make_test_set

SIZES = st.lists(st.integers(2, 30), min_size=1, max_size=6)


def numbered(sizes: list[int]) -> Split:
    """Each example's vector is its row, so that parts can be traced back."""
    y = np.random.default_rng(1).permutation(np.repeat(np.arange(len(sizes)), sizes))
    return Split(np.arange(len(y), dtype=np.float32)[:, None], y)


def rows_of(split: Split) -> list[int]:
    return split.x[:, 0].astype(int).tolist()


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (np.zeros((2, 3), np.int64), np.zeros(2, np.int64), "float vectors"),
        (np.zeros((2, 3, 4, 4), np.float32), np.zeros(2, np.int64), "uint8 images"),
        (np.zeros((2, 4, 4), np.uint8), np.zeros(2, np.int64), "uint8 images"),
        (np.zeros((2, 3), np.float32), np.zeros(3, np.int64), r"shape \[2\]"),
        (np.zeros((2, 3), np.float32), np.zeros(2, np.int32), "int64 labels"),
        (np.zeros((0, 3), np.float32), np.zeros(0, np.int64), "no examples"),
        (np.zeros((2, 3), np.float32), np.array([0, -1]), "example 1 has the label -1"),
        (np.array([[0.0], [np.nan]]), np.zeros(2, np.int64), "example 1 is not finite"),
    ],
)
def test_a_split_refuses_what_cannot_be_learned_from(x, y, message) -> None:
    with pytest.raises(InputError, match=message):
        Split(x, y)


def test_a_dataset_opens_each_part_once_and_only_on_use() -> None:
    opened = []

    def opener(part: str):
        def open_part() -> Split:
            opened.append(part)
            return numbered([2, 2])

        return open_part

    data = Dataset("toy", ("a", "b"), opener("train"), opener("test"))
    assert data.n_classes == 2
    assert opened == []
    assert data.train is data.train
    assert opened == ["train"]
    assert len(data.test) == 4
    assert opened == ["train", "test"]


def test_a_dataset_refuses_labels_without_a_name() -> None:
    data = Dataset("toy", ("a",), lambda: numbered([2, 2]), lambda: numbered([2]))
    with pytest.raises(InputError, match="toy has 1 classes, but its train part has the label 1"):
        _ = data.train


@given(SIZES, st.floats(0.01, 0.99), st.integers(0, 99))
def test_hold_out_takes_the_same_share_of_every_class(sizes, fraction, seed) -> None:
    split = numbered(sizes)
    expected = [round(fraction * size) for size in sizes]
    if any(n in (0, size) for n, size in zip(expected, sizes, strict=True)):
        with pytest.raises(InputError, match="each needs at least 1"):
            hold_out(split, fraction, seed)
        return
    train, held = hold_out(split, fraction, seed)
    assert sorted(rows_of(train) + rows_of(held)) == list(range(len(split)))
    assert Counter(held.y) == dict(enumerate(expected))
    for part in (train, held):
        assert part.y.tolist() == split.y[rows_of(part)].tolist()


def test_hold_out_depends_on_the_seed_alone() -> None:
    split = numbered([30, 30])
    held = [rows_of(hold_out(split, 0.2, seed)[1]) for seed in (0, 0, 1)]
    assert held[0] == held[1] != held[2]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_hold_out_needs_a_fraction(fraction: float) -> None:
    with pytest.raises(InputError, match="between 0 and 1"):
        hold_out(numbered([4]), fraction, 0)


@given(SIZES, st.integers(1, 40), st.integers(0, 99))
def test_cap_per_class(sizes, n, seed) -> None:
    split = numbered(sizes)
    capped = cap_per_class(split, n, seed)
    assert Counter(capped.y) == {c: min(n, size) for c, size in enumerate(sizes)}
    assert rows_of(capped) == sorted(rows_of(capped))
    assert capped.y.tolist() == split.y[rows_of(capped)].tolist()


def test_a_cap_of_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="at least 1"):
        cap_per_class(numbered([3]), 0, 0)


def test_the_test_set_has_all_images_of_the_tasks_classes_once() -> None:
    split = numbered([3, 4, 5, 6])
    tasks = (Task(0, (0, 2)), Task(1, (2, 3)))
    scored = make_test_set(split, tasks)
    assert scored.tasks == tasks
    assert scored.x[:, 0].int().tolist() == np.flatnonzero(split.y != 1).tolist()
    assert scored.y.tolist() == split.y[split.y != 1].tolist()
    assert scored.y.dtype == torch.int64


@given(SIZES, st.integers(1, 60), st.integers(0, 9))
def test_a_limited_test_set_is_balanced(sizes, limit, seed) -> None:
    split, k = numbered(sizes), len(sizes)
    tasks = [Task(0, tuple(range(k)))]
    if limit < k:
        with pytest.raises(InputError, match="at least one each"):
            make_test_set(split, tasks, limit, seed)
        return
    scored = make_test_set(split, tasks, limit, seed)
    assert len(scored.y) <= limit
    shares = [limit // k + (c < limit % k) for c in range(k)]
    expected = {
        c: min(share, size) for c, (share, size) in enumerate(zip(shares, sizes, strict=True))
    }
    assert Counter(scored.y.tolist()) == expected
    assert torch.equal(scored.x, make_test_set(split, tasks, limit, seed).x)


def test_a_class_without_held_out_examples_is_refused() -> None:
    with pytest.raises(InputError, match="no held-out examples of class 2"):
        make_test_set(numbered([2, 2]), [Task(0, (0, 2))])


IMAGES = np.arange(2 * 4 * 5 * 3, dtype=np.uint8).reshape(2, 4, 5, 3)


def test_images_come_channels_last_and_become_channels_first() -> None:
    data = from_arrays(IMAGES, [0, 1], IMAGES, [1, 0])
    assert data.train.x.shape == (2, 3, 4, 5)
    assert data.train.x[1, 2, 3, 4] == IMAGES[1, 3, 4, 2]
    grey = from_arrays(IMAGES[..., 0], [0, 1], IMAGES[..., 0], [1, 0])
    assert grey.test.x.shape == (2, 1, 4, 5)
    assert np.array_equal(grey.test.x[:, 0], IMAGES[..., 0])


def test_vectors_become_float32() -> None:
    data = from_arrays([[1, 2], [3, 4]], [0, 1], [[0.5, 0.25]], [1], name="points")
    assert data.train.x.dtype == np.float32
    assert data.test.x.tolist() == [[0.5, 0.25]]
    assert data.name == "points"


@pytest.mark.parametrize(
    ("y", "y_test", "names", "train", "test"),
    [
        (["b", "a"], ["a", "a"], ("a", "b"), [1, 0], [0, 0]),
        ([30, -7], [-7, 30], ("-7", "30"), [1, 0], [0, 1]),
        ([10, 9], [9, 9], ("9", "10"), [1, 0], [0, 0]),  # numbers sort as numbers
        (np.array(["b", "a"], dtype=object), ["b", "b"], ("a", "b"), [1, 0], [1, 1]),
        (np.array([1, 0], dtype=np.uint8), [1, 1], ("0", "1"), [1, 0], [1, 1]),
    ],
)
def test_labels_of_any_kind_are_numbered_in_order(y, y_test, names, train, test) -> None:
    data = from_arrays(IMAGES, y, IMAGES, y_test)
    assert data.class_names == names
    assert data.train.y.tolist() == train
    assert data.test.y.tolist() == test
    assert data.train.y.dtype == np.int64


def test_given_class_names_fix_the_numbering() -> None:
    names = ["dog", "cat", "emu"]
    by_name = from_arrays(IMAGES, ["cat", "dog"], IMAGES, ["emu", "cat"], class_names=names)
    by_number = from_arrays(IMAGES, [1, 0], IMAGES, [2, 1], class_names=names)
    for data in (by_name, by_number):
        assert data.class_names == ("dog", "cat", "emu")
        assert data.train.y.tolist() == [1, 0]
        assert data.test.y.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("x", "y", "y_test", "message"),
    [
        (IMAGES.transpose(0, 3, 1, 2), [0, 1], [0, 1], "channels last"),
        (IMAGES / 255, [0, 1], [0, 1], "uint8"),
        (np.zeros(2), [0, 1], [0, 1], "vectors"),
        (np.full((2, 1), 1e300), [0, 1], [0, 1], "not finite"),
        (IMAGES, [0, 1, 2], [0, 1], r"shape \[2\]"),
        (IMAGES, [0.5, 1], [0, 1], "integers or strings"),
        (IMAGES, [None, 1], [0, 1], "integers or strings"),
        (IMAGES, [[0], [1]], [0, 1], r"shape \[N\]"),
        (IMAGES, ["a", "b"], ["a", "c"], "class 'c' is not one of the 2"),
    ],
)
def test_unusable_arrays_are_refused(x, y, y_test, message) -> None:
    with pytest.raises(InputError, match=message):
        from_arrays(x, y, x, y_test)


def test_labels_outside_the_given_names_are_refused() -> None:
    with pytest.raises(InputError, match="row 1 has the label 2, outside 0 to 1"):
        from_arrays(IMAGES, [0, 2], IMAGES, [0, 1], class_names=["a", "b"])
    with pytest.raises(InputError, match="two classes have the same name"):
        from_arrays(IMAGES, [0, 1], IMAGES, [0, 1], class_names=["a", "a"])
    with pytest.raises(InputError, match="'c' is not one"):
        from_arrays(IMAGES, ["a", "c"], IMAGES, ["a", "a"], class_names=["a", "b"])


def test_training_and_test_examples_must_be_alike() -> None:
    with pytest.raises(InputError, match="differ in shape"):
        from_arrays(IMAGES, [0, 1], IMAGES[:, :3], [0, 1])
