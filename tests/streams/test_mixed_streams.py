"""Blurry and gaussian streams, and imbalance, against counts and formulas of their own."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from deepccg.core import InputError, SecondRead
from deepccg.streams import (
    SCHEDULES,
    Cursor,
    JointStream,
    Split,
    Stream,
    blurry,
    build_stream,
    disjoint,
    gaussian,
)


def make_split(sizes: list[int]) -> Split:
    """Class c has ``sizes[c]`` examples, interleaved; each example's vector begins with its row."""
    y = np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = np.arange(len(y), dtype=np.float32)[:, None] + np.zeros(3, dtype=np.float32)
    return Split(x, y)


def rows_of(stream: Stream) -> np.ndarray:
    return np.concatenate([stream.indices(step) for step in range(len(stream))])


def check_single_pass(stream: Stream) -> None:
    """Every example at most once; the cursor hands out each, and none again."""
    rows = rows_of(stream)
    assert len(set(rows.tolist())) == len(rows) == stream.examples
    cursor = Cursor(stream)
    assert sum(len(batch) for batch in cursor) == stream.examples
    with pytest.raises(SecondRead):
        cursor.read(0)


sizes_of_classes = st.lists(st.integers(1, 25), min_size=2, max_size=8)


@settings(max_examples=60, deadline=None)
@given(sizes_of_classes, st.floats(0, 0.95), st.integers(1, 4), st.integers(0, 2**32), st.data())
def test_a_blurry_stream_spills_the_share_of_each_class(sizes, blur, per_task, seed, data) -> None:
    assume(per_task < len(sizes))
    cap = data.draw(st.integers(1, 30))
    split = make_split(sizes)
    fields = {"classes_per_task": per_task, "examples_per_class": cap, "seed": seed}
    stream = blurry(split, blur=blur, batch_size=4, **fields)
    assert stream.tasks[0].classes == disjoint(split, **fields).tasks[0].classes
    check_single_pass(stream)
    came: Counter[tuple[int, int]] = Counter()  # by class and place of the task
    for step in range(len(stream)):
        place = stream.tasks.index(stream.task_of(step))
        came.update((int(c), place) for c in split.y[stream.indices(step)])
    for own, task in enumerate(stream.tasks):
        for c in task.classes:
            n = min(sizes[c], cap)
            others = [came[c, place] for place in range(len(stream.tasks)) if place != own]
            assert sum(others) + came[c, own] == n
            assert came[c, own] >= 1
            exact = min(Fraction(blur) * n, n - 1)
            assert abs(sum(others) - exact) <= Fraction(1, 2)
            assert max(others) - min(others) <= 1  # evenly
    assert all(batch.task is None and batch.tasks is None for batch in Cursor(stream))


def test_what_a_share_of_a_tenth_means() -> None:
    split = make_split([500] * 10)
    stream = blurry(split, classes_per_task=2)  # blur 0.1
    for step, task in ((0, stream.tasks[0]), (len(stream) - 1, stream.tasks[-1])):
        assert stream.task_of(step) == task
    first = np.concatenate(
        [split.y[stream.indices(s)] for s in range(len(stream)) if stream.task_of(s).id == 0]
    )
    foreign = ~np.isin(first, stream.tasks[0].classes)
    assert 96 <= foreign.sum() <= 104  # 8 classes, of each 12 or 13
    # Not all at the end, and another number is another stream.
    assert 20 <= foreign[: len(first) // 2].sum() <= 80
    assert blurry(split, classes_per_task=2, blur=0.2).fingerprint() != stream.fingerprint()


def test_without_blur_the_examples_are_those_of_disjoint_tasks() -> None:
    split = make_split([20] * 6)
    plain, clear = disjoint(split, classes_per_task=2), blurry(split, classes_per_task=2, blur=0)
    for step in range(len(plain)):
        assert np.array_equal(plain.indices(step), clear.indices(step))
    assert plain[0].task is not None
    assert clear[0].task is None
    assert plain.fingerprint() != clear.fingerprint()


def expected_position(peak: int, sizes: list[int], spread: float) -> float:
    """Mean position of the examples of one class: how many come earlier, by the normal's integral.

    Two times are p + spread u and q + spread v, so that the second is earlier with probability
    Phi((p - q) / (spread sqrt 2)); of the class's own examples half are.
    """
    earlier = [
        (n - (q == peak)) * 0.5 * (1 + math.erf((peak - q) / (2 * spread)))
        for q, n in enumerate(sizes)
    ]
    return sum(earlier)


@pytest.mark.parametrize("spread", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("sizes", [[300] * 8, [400, 50, 300, 20, 200]], ids=["even", "uneven"])
def test_classes_arrive_around_their_peaks(spread: float, sizes: list[int]) -> None:
    split, n_seeds = make_split(sizes), 12
    order = list(range(len(sizes)))
    means: dict[int, list[float]] = {c: [] for c in order}
    for seed in range(n_seeds):
        stream = gaussian(split, classes_per_task=2, spread=spread, seed=seed, class_order=order)
        labels = split.y[rows_of(stream)]
        for c in order:
            means[c].append(float(np.flatnonzero(labels == c).mean()))
    expected = {c: expected_position(c, sizes, spread) for c in order}
    wrong = {c: expected_position(c, sizes, 2 * spread) for c in order}

    def fits(formula: dict[int, float]) -> bool:
        found = np.array([np.mean(means[c]) for c in order])
        errors = np.array([np.std(means[c], ddof=1) / n_seeds**0.5 for c in order])
        return bool(np.all(np.abs(found - list(formula.values())) <= 4.5 * errors + 0.5))

    assert fits(expected)
    assert spread < 0.5 or not fits(wrong)  # narrow peaks hardly overlap, whatever their spread


@settings(max_examples=40, deadline=None)
@given(sizes_of_classes, st.floats(0.01, 50), st.integers(1, 8), st.integers(0, 2**32))
def test_a_gaussian_stream_has_every_example_once(sizes, spread, per_task, seed) -> None:
    assume(per_task <= len(sizes))
    split = make_split(sizes)
    stream = gaussian(split, classes_per_task=per_task, spread=spread, seed=seed, batch_size=4)
    check_single_pass(stream)
    assert Counter(split.y[rows_of(stream)]) == dict(enumerate(sizes))
    assert stream.classes == disjoint(split, classes_per_task=per_task, seed=seed).classes
    assert stream.task_free
    assert all(batch.task is None for batch in Cursor(stream))
    came: Counter[int] = Counter()
    for step in range(len(stream)):
        came[stream.task_of(step).id] += len(stream.indices(step))
    assert [came[t.id] for t in stream.tasks] == [
        sum(sizes[c] for c in t.classes) for t in stream.tasks
    ]


def test_a_narrow_peak_is_a_disjoint_class_and_a_wide_one_is_all_mixed() -> None:
    split = make_split([50] * 6)
    labels = split.y[rows_of(gaussian(split, classes_per_task=1, spread=0.01))]
    assert (np.diff(labels) != 0).sum() == 5
    labels = split.y[rows_of(gaussian(split, classes_per_task=1, spread=1000))]
    assert (np.diff(labels) != 0).sum() > 200


def exact_counts(n: int, classes: int, ratio: float) -> list[float]:
    """From the most frequent class to the rarest: a constant factor between neighbours."""
    factor = ratio ** (1 / max(1, classes - 1))
    counts = [float(n)]
    for _ in range(classes - 1):
        counts.append(counts[-1] / factor)
    return counts


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([kind for kind in SCHEDULES if kind != "shifting-window"]),
    st.lists(st.integers(8, 40), min_size=3, max_size=7),
    st.floats(1, 8),
    st.integers(0, 2**32),
)
def test_classes_are_as_frequent_as_the_formula_says(kind, sizes, ratio, seed) -> None:
    split = make_split(sizes)
    options = {"domains": 2} if kind == "domain" else {"classes_per_task": 2}
    stream = build_stream(kind, split, imbalance=ratio, seed=seed, batch_size=5, **options)
    check_single_pass(stream)
    found = sorted(Counter(split.y[rows_of(stream)].tolist()).values(), reverse=True)
    assert len(found) == len(sizes)
    for count, exact in zip(found, exact_counts(min(sizes), len(sizes), ratio), strict=True):
        assert abs(count - exact) <= 0.5 + 1e-6


def test_a_window_has_its_share_of_frequent_and_rare_classes() -> None:
    split = make_split([60] * 5)
    stream = build_stream("shifting-window", split, imbalance=10, classes_per_task=2, seed=1)
    whole = Counter(split.y[rows_of(disjoint(split, classes_per_task=2, imbalance=10, seed=1))])
    for step_task in stream.tasks:
        steps = [s for s in range(len(stream)) if stream.task_of(s) == step_task]
        came = Counter(np.concatenate([split.y[stream.indices(s)] for s in steps]).tolist())
        assert came == {c: whole[c] // 2 for c in step_task.classes}


def test_which_class_is_rare_depends_on_the_seed_and_not_on_the_order() -> None:
    split = make_split([30] * 4)

    def counts(**fields: object) -> dict[int, int]:
        stream = disjoint(split, classes_per_task=2, imbalance=10, **fields)
        return dict(Counter(split.y[rows_of(stream)].tolist()))

    assert counts(seed=1, class_order=[0, 1, 2, 3]) == counts(seed=1, class_order=[3, 1, 0, 2])
    assert len({max(own := counts(seed=s), key=own.get) for s in range(25)}) == 4


@pytest.mark.parametrize("kind", ["blurry", "gaussian"])
def test_pooled_examples_of_a_task_free_stream_have_no_task(kind: str) -> None:
    joint = JointStream(build_stream(kind, make_split([9] * 4), classes_per_task=2), passes=2)
    assert joint.examples == 72
    for step in range(len(joint)):
        assert (joint[step].task, joint[step].tasks) == (None, None)


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        ("blurry", {"blur": 1}, "blur must be at least 0 and less than 1, not 1"),
        ("blurry", {"blur": -0.1}, "not -0.1"),
        ("blurry", {"blur": math.nan}, "not nan"),
        ("blurry", {"classes_per_task": 4}, "needs two tasks or more: lower classes_per_task"),
        ("gaussian", {"spread": 0}, "spread must be more than 0"),
        ("gaussian", {"spread": math.inf}, "at most 1,000, not inf"),
        ("disjoint", {"blur": 0.1}, "a disjoint stream has no blur: that is for blurry"),
        ("blurry", {"spread": 1}, "a blurry stream has no spread: that is for gaussian"),
        ("domain", {"classes_per_task": 2}, "a domain stream has no classes_per_task"),
        ("disjoint", {"imbalance": 0.5}, "imbalance must be between 1 and 6"),
        ("gaussian", {"imbalance": 7}, "the examples of class 2, not 7"),
        ("blurry", {"imbalance": math.nan}, "not nan"),
    ],
)
def test_impossible_options_are_refused(kind: str, options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        build_stream(kind, make_split([9, 9, 6, 9]), **options)


def test_labels_of_no_task_are_refused_also_without_tasks() -> None:
    stream = blurry(make_split([5] * 4), classes_per_task=2)
    with pytest.raises(InputError, match="outside its classes"):
        Stream(
            stream._x,
            stream._y,
            stream._rows[:2],
            np.array([0, 2]),
            [type(stream.tasks[0])(0, (9,))],
            task_free=True,
        )
