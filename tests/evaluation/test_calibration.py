"""Calibration figures against closed forms, brute force and scikit-learn."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import brier_score_loss

from deepccg import InputError
from deepccg.evaluation import brier_score, expected_calibration_error, reliability


def drawn(seed: int, rows: int, classes: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return random.integers(classes, size=rows), random.dirichlet(np.ones(classes), size=rows)


def brute_force(y: Any, p: Any, bins: int) -> float:
    """Interval by interval, as the definition reads."""
    total = 0.0
    for b in range(bins):
        low, high = Fraction(b, bins), Fraction(b + 1, bins)
        members = [i for i in range(len(p)) if low < Fraction(p[i].max()) <= high]
        if members:
            right = sum(p[i].argmax() == y[i] for i in members) / len(members)
            sure = sum(p[i].max() for i in members) / len(members)
            total += len(members) / len(p) * abs(right - sure)
    return total


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 6), st.integers(1, 20))
def test_ece_by_brute_force(seed: int, rows: int, classes: int, bins: int) -> None:
    y, p = drawn(seed, rows, classes)
    assert expected_calibration_error(y, p, bins=bins) == pytest.approx(brute_force(y, p, bins))


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(2, 6))
def test_one_group_is_the_gap_of_the_means(seed: int, rows: int, classes: int) -> None:
    y, p = drawn(seed, rows, classes)
    gap = abs(p.max(axis=1).mean() - (p.argmax(axis=1) == y).mean())
    assert expected_calibration_error(y, p, bins=1) == pytest.approx(gap)
    assert expected_calibration_error(y, p, bins=1, equal="mass") == pytest.approx(gap)


@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 20))
def test_groups_of_equal_mass(seed: int, rows: int, bins: int) -> None:
    y, p = drawn(seed, rows, 4)
    groups = reliability(y, p, bins=bins, equal="mass")
    assert groups.count.sum() == rows
    assert groups.count.max() - groups.count.min() <= 1
    full = groups.confidence[groups.count > 0]
    assert (np.diff(full) >= 0).all()
    if rows <= bins:  # every prediction by itself: the gap is 1 - p where right, p where wrong
        right = p.argmax(axis=1) == y
        assert groups.error == pytest.approx(np.abs(right - p.max(axis=1)).mean())


def test_closed_forms() -> None:
    sure = np.tile([0.8, 0.2], (10, 1))
    assert expected_calibration_error([0] * 8 + [1] * 2, sure) == pytest.approx(0)
    assert expected_calibration_error([1] * 10, sure) == pytest.approx(0.8)
    assert expected_calibration_error(range(4), np.eye(4)) == 0
    assert brier_score(range(4), np.eye(4)) == 0
    assert brier_score([1, 2, 3, 0], np.eye(4)) == 2
    assert brier_score([0, 1], np.full((2, 4), 0.25)) == pytest.approx(0.75)


def test_calibrated_by_construction() -> None:
    """Labels drawn from the stated probabilities: the error vanishes like 1/sqrt(N)."""
    random = np.random.default_rng(0)
    p = random.dirichlet(np.ones(5), size=100_000)
    y = (p.cumsum(axis=1) > random.random((100_000, 1))).argmax(axis=1)
    assert expected_calibration_error(y, p) < 0.01
    sharper = p**3 / (p**3).sum(axis=1, keepdims=True)
    assert expected_calibration_error(y, sharper) > 0.1
    assert brier_score(y, p) < brier_score(y, sharper)  # proper: the truth scores best


@given(st.integers(0, 10**6), st.integers(1, 60))
def test_brier_against_scikit_learn(seed: int, rows: int) -> None:
    y, p = drawn(seed, rows, 2)
    assert brier_score(y, p) == pytest.approx(2 * brier_score_loss(y, p[:, 1], labels=[0, 1]))


@given(st.integers(0, 10**6), st.permutations(["ant", "bee", "cow"]))
def test_labels_are_found_by_name(seed: int, names: list[str]) -> None:
    y, p = drawn(seed, 20, 3)
    labels = np.array(names)[y]
    assert brier_score(labels, p, classes=names) == brier_score(y, p)
    found = expected_calibration_error(labels, p, classes=names)
    assert found == expected_calibration_error(y, p)


@pytest.mark.parametrize(
    ("y", "p", "more", "message"),
    [
        ([0], [[0.5, 0.6]], {}, "sum to 1"),
        ([0], [[1.5, -0.5]], {}, "0 or more"),
        ([0], [[np.nan, 1.0]], {}, "0 or more"),
        ([0], [0.5, 0.5], {}, r"\[N, K\]"),
        ([], np.zeros((0, 2)), {}, r"\[N, K\]"),
        ([0, 1], [[0.5, 0.5]], {}, "need 1 labels"),
        ([0], [[0.5, 0.5]], {"classes": ["a"]}, "2 classes"),
        ([2], [[0.5, 0.5]], {}, "label .*2.* none of the classes"),
        (["z"], [[0.5, 0.5]], {"classes": ["a", "b"]}, "'z'.* none of the classes"),
        ([0], [[0.5, 0.5]], {"bins": 0}, "bins is 0"),
        ([0], [[0.5, 0.5]], {"equal": "area"}, "equal is 'area'"),
    ],
)
def test_bad_input_is_one_line(y: Any, p: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        expected_calibration_error(y, p, **more)
