"""The linear model against direct inverses and SciPy's normal densities."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

from deepccg.gaussian.linear_regression import LinearModel, fit_linear_model

NOISE, PRIOR, DIM, OUTPUTS = 0.3, 2.0, 3, 4
counts, seeds = st.integers(2, 9), st.integers(0, 2**20)


def points(count, seed):
    """Features, one-hot targets, and which points are known."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(count, DIM, generator=generator, dtype=torch.float64)
    labels = torch.randint(OUTPUTS, (count,), generator=generator)
    known = torch.rand(count, generator=generator) < 0.5
    return features, torch.nn.functional.one_hot(labels, OUTPUTS).double(), known


def fit(features, targets, known):
    return fit_linear_model(features, targets, known, NOISE, PRIOR)


def log_density(features, targets, known, point):
    """Of one point's target, all known targets being jointly Gaussian with it."""
    order = [*known, point]
    phi = features[order].numpy()
    joint = PRIOR * phi @ phi.T + NOISE * np.eye(len(order))
    cross, inverse = joint[-1, :-1], np.linalg.inv(joint[:-1, :-1])
    if point in known:  # the noise of a point is its own: asked again, it is a new draw of it
        cross = PRIOR * phi[-1] @ phi[:-1].T
    mean = cross @ inverse @ targets[known].numpy() if known else np.zeros(OUTPUTS)
    variance = joint[-1, -1] - cross @ inverse @ cross
    return multivariate_normal(mean, variance * np.eye(OUTPUTS)).logpdf(targets[point].numpy())


def check_criteria(model_class, count, seed):
    """Surprise without the point, learnability with it, for points inside and outside."""
    features, targets, known = points(count, seed)
    model = model_class(**vars(fit(features, targets, known)))
    surprise, learnability = model.surprise(), model.learnability()
    for i in range(count):
        others = [j for j in range(count) if known[j] and j != i]
        expected = -log_density(features, targets, others, i)
        assert float(surprise[i]) == pytest.approx(expected, rel=1e-8)
        expected = log_density(features, targets, [*others, i], i)
        assert float(learnability[i]) == pytest.approx(expected, rel=1e-8)


class LearnabilityWithoutThePoint(LinearModel):
    """Wrong: what a point would gain by being known is left out."""

    def learnability(self):
        return -self.surprise()


class SurpriseWithThePoint(LinearModel):
    """Wrong: a stored point is not surprised by itself."""

    def surprise(self):
        return -self._log_density(torch.ones_like(self.leverage))


@given(count=counts, seed=seeds)
def test_surprise_and_learnability_are_gaussian_conditionals(count, seed):
    check_criteria(LinearModel, count, seed)


@pytest.mark.parametrize("wrong", [LearnabilityWithoutThePoint, SurpriseWithThePoint])
def test_wrong_criteria_are_noticed(wrong):
    with pytest.raises(AssertionError):
        check_criteria(wrong, 6, 0)


@given(count=counts, seed=seeds, moves=st.lists(st.integers(0, 8), max_size=12))
def test_rank_one_updates_are_the_direct_inverse(count, seed, moves):
    features, targets, known = points(count, seed)
    model = fit(features, targets, known)
    for move in moves:
        point = move % count
        model = model.removing(point) if known[point] else model.adding(point)
        known = known.clone()
        known[point] = not known[point]
    direct = fit(features, targets, known)
    assert torch.equal(model.fitted, known)
    inner = np.linalg.inv(
        features[known].numpy().T @ features[known].numpy() / NOISE + np.eye(DIM) / PRIOR
    )
    np.testing.assert_allclose(model.covariance, inner, rtol=1e-7, atol=1e-9)
    for name in ("residuals", "leverage", "covariance"):
        found, expected = vars(model)[name], vars(direct)[name]
        torch.testing.assert_close(found, expected, rtol=1e-7, atol=1e-9)


def test_copies_and_mislabelled_copies():
    """A copy has little surprise; with another label it has much, and cannot be learned well."""
    features, targets, _ = points(6, 0)
    features = torch.cat([features.repeat(8, 1), features[:1], features[:1], features[:1] * 3])
    wrong = targets[0].roll(1)[None]
    targets = torch.cat([targets.repeat(8, 1), targets[:1], wrong, targets[1:2]])
    known = torch.arange(len(features)) < len(features) - 3
    model = fit(features, targets, known)
    surprise, learnability = model.surprise(), model.learnability()
    copy, mislabelled, far = -3, -2, -1
    assert surprise[copy] < surprise[mislabelled]
    assert surprise[copy] < surprise[far]
    assert learnability[mislabelled] < learnability[copy]
    gain = surprise + learnability
    assert gain[copy] < gain[mislabelled]
