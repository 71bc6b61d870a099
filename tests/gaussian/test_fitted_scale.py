"""The fitted scale against NumPy's pooled covariance."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from deepccg.gaussian import class_posterior, fitted_scale


def scale_of(z, y) -> float:
    z, y = torch.as_tensor(z), torch.as_tensor(y)
    return float(fitted_scale(z, y, class_posterior(z, y, 4)))


def pooled_covariance(z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Unbiased within-class covariances, weighted by their degrees of freedom."""
    groups = [z[y == c] for c in np.unique(y) if (y == c).sum() > 1]
    covariances = [np.atleast_2d(np.cov(g, rowvar=False)) for g in groups]
    return np.average(covariances, axis=0, weights=[len(g) - 1 for g in groups])


@st.composite
def spread_data(draw):
    size, dim = draw(st.integers(2, 12)), draw(st.integers(1, 4))
    z = draw(arrays(np.float64, (size, dim), elements=st.floats(-5, 5)))
    y = draw(arrays(np.int64, size, elements=st.integers(0, 3)))
    assume(np.bincount(y).max() > 1)
    within = np.linalg.norm(pooled_covariance(z, y))
    assume(within > 1e-6)
    assume(within > 0.011 * np.linalg.norm(np.cov(z, rowvar=False)))  # below it: see collapsed
    return z, y


@given(spread_data())
def test_scaled_pooled_covariance_has_unit_norm(data):
    z, y = data
    scale = scale_of(z, y)
    assert np.linalg.norm(pooled_covariance(scale * z, y)) == pytest.approx(1.0)
    assert scale == pytest.approx(np.linalg.norm(pooled_covariance(z, y)) ** -0.5)


@given(spread_data())
def test_in_one_dimension_it_is_the_inverse_pooled_deviation(data):
    z, y = data[0][:, :1], data[1]
    variance = float(pooled_covariance(z, y)[0, 0])
    assume(variance > 1e-6)
    assume(variance > 0.011 * float(np.var(z, ddof=1)))
    assert scale_of(z, y) == pytest.approx(variance**-0.5)


@pytest.mark.parametrize("dim", [1, 5, 40])
def test_scaled_squared_distances_vary_by_the_root_of_two(dim):
    """What the norm is for, by sampling: the same sharpness however many dimensions vary."""
    rng = np.random.default_rng(dim)
    z = rng.normal(size=(40_000, dim)) @ rng.normal(size=(dim, dim)) + 3
    scaled = scale_of(z, np.zeros(len(z), dtype=int)) * z
    distance = np.sum((scaled - scaled.mean(axis=0)) ** 2, axis=1)
    assert distance.std() == pytest.approx(np.sqrt(2), rel=0.05)


@given(spread_data(), st.floats(1e-3, 1e3), st.floats(-10, 10))
def test_scale_is_equivariant_and_ignores_translation(data, factor, shift):
    z, y = data
    assert scale_of(factor * z, y) == pytest.approx(scale_of(z, y) / factor)
    assert scale_of(z + shift, y) == pytest.approx(scale_of(z, y))


@given(arrays(np.float32, (4, 3), elements=st.floats(-5, 5, width=32)))
def test_one_example_per_class_gives_scale_one(z):
    assert scale_of(z, np.arange(4)) == 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(values=st.data(), copies=st.integers(2, 30))
def test_coincident_examples_give_scale_one(values, copies, dtype):
    """Even where the mean of equal numbers is rounded away from them."""
    width = np.dtype(dtype).itemsize * 8
    points = values.draw(arrays(dtype, (4, 3), elements=st.floats(-1e6, 1e6, width=width)))
    assert scale_of(points.repeat(copies, axis=0), np.arange(4).repeat(copies)) == 1.0


def test_no_examples_give_scale_one():
    assert scale_of(torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)) == 1.0


@given(st.floats(1e-6, 1e-3), st.integers(0, 2**31))
def test_collapsed_classes_keep_the_scale_bounded(spread, seed):
    """Examples drawn onto their class means: the whole covariance T bounds the scale."""
    rng = np.random.default_rng(seed)
    y = np.arange(4).repeat(10)
    z = rng.normal(size=(4, 5))[y] + spread * rng.normal(size=(40, 5))
    whole = np.linalg.norm(np.cov(z, rowvar=False))
    assert np.linalg.norm(pooled_covariance(z, y)) < 0.01 * whole
    assert scale_of(z, y) == pytest.approx((0.01 * whole) ** -0.5)
