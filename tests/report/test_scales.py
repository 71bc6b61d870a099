"""Axes and colours on the page, which is made without matplotlib, are those that matplotlib has."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib import colormaps
from matplotlib.ticker import MaxNLocator

from deepccg.report.figures.description import axis_between, rounded_axis
from deepccg.report.figures.style import scale_colours

numbers = st.one_of(st.integers(-150, 10**6), st.floats(0, 100), st.floats(-1e-3, 1e-3))


@given(numbers, numbers)
@example(0.1, 0.7)  # 0.1 / 0.1 and the like are not exact
@example(-1e-9, 3e5)
def test_round_numbers_are_matplotlibs(one: float, other: float) -> None:
    low, high = sorted((one, other))
    if high - low < 1e-9 * max(abs(low), abs(high), 1e-3):
        return
    expected = MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    found = [value for value, _ in rounded_axis("", [low, high]).ticks]
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * (high - low) + 1e-12)


def test_an_axis_without_length_has_one_number() -> None:
    assert axis_between("", 0, 0).ticks == ((0, "0"),)


def test_colours_are_viridis() -> None:
    values = np.array([[-1, 0, 1, 2, np.nan, np.inf, -np.inf], [*np.linspace(0, 1, 7)]])
    values = np.concatenate([values, np.random.default_rng(0).random((50, 7))])
    expected = colormaps["viridis"](np.ma.masked_invalid(values), bytes=True)
    found = scale_colours(values)
    assert found.dtype == np.uint8
    assert (found == expected).all()
    every = np.arange(256) / 256
    assert (scale_colours(every) == colormaps["viridis"](every, bytes=True)).all()
