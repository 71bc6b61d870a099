"""Prototypes with a proper prior, against joint normal densities and SciPy's count models."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deepccg.gaussian import (
    Prototypes,
    class_posterior,
    log_class_predictive,
    log_predictive_density,
    log_prototype_predictive,
    squared_distances,
    update_prototypes,
)

C, D = 4, 3


def case(labels, seed):
    """A prior that differs by class and dimension, noise that differs by dimension, and data."""
    generator = torch.Generator().manual_seed(seed)

    def positive(*shape):
        return torch.rand(shape, generator=generator, dtype=torch.float64) * 3 + 0.1

    def normal(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    prior = Prototypes(normal(C, D), positive(C, D))
    return prior, positive(D), 2 * normal(len(labels), D), torch.tensor(labels, dtype=torch.int64)


def log_evidence(values, mean, variance, noise):
    """Log density of one dimension's values, whose mean is unknown: a joint normal."""
    n = len(values)
    if n == 0:
        return 0.0
    covariance = noise * np.eye(n) + variance * np.ones((n, n))
    return stats.multivariate_normal.logpdf(values, np.full(n, mean), covariance)


data = st.lists(st.integers(0, C - 1), max_size=9)


@given(data, st.integers(0, 50))
def test_predictive_is_the_ratio_of_two_marginal_likelihoods(labels, seed):
    """p(z | Z) = p(z, Z) / p(Z), with the mean integrated out by a joint normal density."""
    prior, noise, z, y = case(labels, seed)
    probe = torch.randn(2, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    found = log_prototype_predictive(probe, update_prototypes(prior, z, y, noise), noise)
    for b in range(2):
        for c in range(C):
            expected = 0.0
            for d in range(D):
                old = z[y == c, d].numpy()
                model = (prior.mean[c, d].item(), prior.variance[c, d].item(), noise[d].item())
                both = np.append(old, probe[b, d].item())
                expected += log_evidence(both, *model) - log_evidence(old, *model)
            assert found[b, c].item() == pytest.approx(expected, rel=1e-9, abs=1e-9)


@given(data, st.integers(0, 9), st.integers(0, 50))
def test_updating_twice_is_updating_once(labels, cut, seed):
    prior, noise, z, y = case(labels, seed)
    half = update_prototypes(prior, z[:cut], y[:cut], noise)
    twice = update_prototypes(half, z[cut:], y[cut:], noise)
    once = update_prototypes(prior, z, y, noise)
    torch.testing.assert_close(twice.mean, once.mean)
    torch.testing.assert_close(twice.variance, once.variance)


def test_without_data_the_prior_stays_as_it_is():
    prior, noise, z, y = case([], 0)
    same = update_prototypes(prior, z, y, noise)
    assert torch.equal(same.mean, prior.mean)
    torch.testing.assert_close(same.variance, prior.variance)


@pytest.mark.parametrize("variance", [1e6, 1e9])
def test_flat_prior_and_unit_noise_give_the_posterior_of_deepccg(variance):
    _, _, z, y = case([0, 1, 2, 3, 1, 1, 2, 3, 3, 3], 1)
    prior = Prototypes(torch.full_like(z[:C], 0.7), torch.full_like(z[:C], variance))
    noise = torch.ones(D, dtype=torch.float64)
    found, known = update_prototypes(prior, z, y, noise), class_posterior(z, y, C)
    slack = 10 / variance
    torch.testing.assert_close(found.mean, known.mean, rtol=slack, atol=slack)
    expected = (1 / known.count)[:, None].expand(C, D)
    torch.testing.assert_close(found.variance, expected, rtol=slack, atol=slack)
    probe = z[:5] + 0.3
    everything = torch.ones(5, C, dtype=torch.bool)
    density = log_predictive_density(
        squared_distances(probe, known.mean), known.count, everything, D, "per-class"
    )
    torch.testing.assert_close(
        log_prototype_predictive(probe, found, noise), density, rtol=20 * slack, atol=20 * slack
    )


def test_a_flat_prior_keeps_its_digits_in_single_precision():
    z = torch.tensor([[1000.0], [1000.25]])
    prior = Prototypes(torch.zeros(1, 1), torch.full((1, 1), 1e12))
    found = update_prototypes(prior, z, torch.tensor([0, 0]), torch.full((1,), 0.5))
    assert found.mean.item() == pytest.approx(1000.125, rel=1e-7)
    assert found.variance.item() == pytest.approx(0.25, rel=1e-6)


def test_many_examples_are_compared_as_one_by_one():
    prior, noise, _, _ = case([], 3)
    z = torch.randn(600, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    single = torch.cat([log_prototype_predictive(row[None], prior, noise) for row in z])
    torch.testing.assert_close(log_prototype_predictive(z, prior, noise), single)
    assert log_prototype_predictive(z[:0], prior, noise).shape == (0, C)


@given(
    st.lists(st.integers(0, 30), min_size=2, max_size=5),
    st.floats(0.05, 20, allow_subnormal=False),
)
def test_class_shares_are_those_of_a_dirichlet(counts, prior_count):
    """The posterior's mean, and the next draw of a Dirichlet-multinomial urn."""
    found = log_class_predictive(torch.tensor(counts, dtype=torch.float64), prior_count).exp()
    alpha = np.array(counts) + prior_count
    np.testing.assert_allclose(found.numpy(), stats.dirichlet.mean(alpha), rtol=1e-9)
    urn = stats.dirichlet_multinomial(alpha, n=1)
    draws = [urn.pmf(np.eye(len(counts), dtype=int)[c]) for c in range(len(counts))]
    np.testing.assert_allclose(found.numpy(), draws, rtol=1e-7)
