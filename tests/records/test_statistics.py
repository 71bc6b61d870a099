"""Intervals against SciPy's own, and ones worked out by hand."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from deepccg.records import fit_line, mean_interval

numbers = st.floats(-100, 100).map(lambda value: round(value, 3))


@given(st.lists(numbers, min_size=2, max_size=12))
def test_the_interval_of_a_mean_is_students(values: list[float]) -> None:
    assume(len(set(values)) > 1)
    found = mean_interval(values)
    error = stats.sem(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=np.mean(values), scale=error)
    assert (found.value, found.n) == (pytest.approx(np.mean(values)), len(values))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))


def test_one_value_has_no_interval() -> None:
    found = mean_interval([0.5])
    assert (found.value, found.low, found.high, found.n) == (0.5, None, None, 1)


@given(st.lists(st.tuples(numbers, numbers), min_size=3, max_size=30))
def test_a_line_and_its_interval_are_those_of_scipy(points: list[tuple[float, float]]) -> None:
    x, y = np.array(points).T
    assume(np.ptp(x) > 0.1 and np.ptp(y) > 0.1)  # of a level line SciPy has no interval
    found, expected = fit_line(x, y), stats.linregress(x, y)
    half = stats.t.ppf(0.975, len(x) - 2) * expected.stderr
    assert found is not None
    assert found.intercept == pytest.approx(expected.intercept, abs=1e-6)
    assert found.slope.value == pytest.approx(expected.slope, abs=1e-6)
    assert found.slope.low == pytest.approx(expected.slope - half, rel=1e-5, abs=1e-3)
    assert found.slope.high == pytest.approx(expected.slope + half, rel=1e-5, abs=1e-3)
    assert found.slope.n == len(x)


def test_a_level_line_and_equal_values_have_an_interval_without_width() -> None:
    level = fit_line([0.0, 1.0, 2.0], [0.5, 0.5, 0.5])
    assert level is not None
    assert (level.slope.low, level.slope.value, level.slope.high) == (0.0, 0.0, 0.0)
    same = mean_interval([0.25, 0.25])
    assert (same.low, same.value, same.high) == (0.25, 0.25, 0.25)


def test_a_slope_of_known_interval() -> None:
    """Residuals 1, -2, 1 around y = 2 x + 1: s^2 = 6, sum of squares 2, t_1(0.975) = 12.7062."""
    found = fit_line([0.0, 1.0, 2.0], [2.0, 1.0, 6.0])
    assert found is not None
    assert (found.slope.value, found.intercept) == (pytest.approx(2.0), pytest.approx(1.0))
    half = 12.706205 * (6 / 2) ** 0.5
    assert found.slope.low == pytest.approx(2 - half, rel=1e-6)
    assert found.slope.high == pytest.approx(2 + half, rel=1e-6)


def test_points_that_lie_above_one_another_have_no_line() -> None:
    assert fit_line([1.0, 1.0, 1.0], [1.0, 2.0, 3.0]) is None
    assert fit_line([], []) is None
    two = fit_line([0.0, 2.0], [1.0, 5.0])
    assert two is not None
    assert (two.slope.value, two.intercept, two.slope.low) == (2.0, 1.0, None)
