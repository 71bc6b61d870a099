"""Posterior predictive and conditional marginal likelihood against SciPy's normal densities."""

import math

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.integrate import trapezoid
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm, ortho_group
from torch import Tensor

from deepccg.gaussian import (
    class_posterior,
    log_conditional_marginal_likelihood,
    log_predictive_density,
    squared_distances,
)

VARIANCES = ("per-class", "shared")
EPS = float(np.finfo(np.float32).eps)


@st.composite
def problems(draw, bound=5.0, width=64, min_dim=1):
    """Memory [M, D] and its classes [M], queries [B, D], masks [B, C]."""
    dtype = np.float32 if width == 32 else np.float64
    values = st.floats(-bound, bound, width=width)
    dim, n_classes = draw(st.integers(min_dim, 5)), draw(st.integers(1, 5))
    stored, queries = draw(st.integers(0, 12)), draw(st.integers(1, 4))
    memory = draw(arrays(dtype, (stored, dim), elements=values))
    y = draw(arrays(np.int64, stored, elements=st.integers(0, n_classes - 1)))
    z = draw(arrays(dtype, (queries, dim), elements=values))
    mask = draw(arrays(np.bool_, (queries, n_classes)))
    return tuple(torch.from_numpy(a) for a in (memory, y, z, mask))


def density_of(memory: Tensor, y: Tensor, z: Tensor, mask: Tensor, variance: str) -> Tensor:
    posterior = class_posterior(memory, y, mask.shape[1])
    distance = squared_distances(z, posterior.mean)
    return log_predictive_density(distance, posterior.count, mask, z.shape[1], variance)


def scipy_density(memory, y, z, mask, variance) -> np.ndarray:
    """The same by SciPy, one class of one example at a time."""
    memory, y, z, mask = (a.numpy().astype(float) for a in (memory, y, z, mask))
    expected = np.full(mask.shape, -np.inf)
    for b, c in np.argwhere(mask):
        allowed = [k for k in range(mask.shape[1]) if mask[b, k] and (y == k).any()]
        if c not in allowed:
            continue
        own = memory[y == c]
        shared_n = np.mean([(y == k).sum() for k in allowed])
        n = len(own) if variance == "per-class" else shared_n
        covariance = (1 + 1 / n) * np.eye(z.shape[1])
        expected[b, c] = multivariate_normal(own.mean(axis=0), covariance).logpdf(z[b])
    return expected


@pytest.mark.parametrize("variance", VARIANCES)
@given(problem=problems())
def test_density_is_scipys_multivariate_normal(problem, variance):
    density = density_of(*problem, variance)
    expected = scipy_density(*problem, variance)
    np.testing.assert_allclose(density, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("variance", VARIANCES)
@given(problem=problems())
def test_probabilities_are_normalised_densities_over_the_mask(problem, variance):
    mask = problem[3]
    density = density_of(*problem, variance)
    known = torch.isfinite(density)
    assert not bool((known & ~mask).any())
    some = known.any(dim=1)
    assume(bool(some.any()))
    probability = torch.softmax(density[some], dim=1)
    np.testing.assert_allclose(probability.sum(dim=1), 1.0, atol=1e-12)
    assert not probability[~known[some]].any()  # exactly zero outside
    expected = scipy_density(*problem, variance)[some.numpy()]
    expected = np.exp(expected - logsumexp(expected, axis=1, keepdims=True))
    np.testing.assert_allclose(probability, expected, atol=1e-9)


@given(problem=problems(), labels=st.data())
def test_terms_of_the_loss(problem, labels):
    """A term exists where its own class and one other allowed class have evidence."""
    mask = problem[3]
    y = labels.draw(
        arrays(np.int64, len(mask), elements=st.integers(0, mask.shape[1] - 1)), label="y"
    )
    density = scipy_density(*problem, "shared")
    terms, exists = log_conditional_marginal_likelihood(
        torch.from_numpy(density), torch.from_numpy(y)
    )
    expected = {
        b: density[b, c] - logsumexp(density[b])
        for b, c in enumerate(y)
        if np.isfinite(density[b, c]) and np.isfinite(density[b]).sum() >= 2
    }
    assert exists.nonzero().flatten().tolist() == list(expected)
    np.testing.assert_allclose(terms, list(expected.values()), rtol=1e-9, atol=1e-9)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=5), st.floats(-3, 3))
def test_predictive_integrates_the_posterior(own, z):
    """In one dimension: the integral over mu of N(z; mu, 1) p(mu | own), by quadrature."""
    n, mean = len(own), float(np.mean(own))
    mu = np.linspace(-15, 15, 4001)
    integral = trapezoid(norm.pdf(z, mu, 1) * norm.pdf(mu, mean, 1 / math.sqrt(n)), mu)
    memory = torch.tensor(own, dtype=torch.float64)[:, None]
    query = torch.tensor([[z]], dtype=torch.float64)
    y, mask = torch.zeros(n, dtype=torch.int64), torch.ones(1, 1, dtype=torch.bool)
    density = density_of(memory, y, query, mask, "per-class")
    assert float(density.exp()) == pytest.approx(integral, rel=1e-6)


@pytest.mark.parametrize("variance", VARIANCES)
@given(problem=problems(min_dim=2), seed=st.integers(0, 2**32 - 1), shift=st.floats(-1e3, 1e3))
def test_rotation_and_translation_change_nothing(problem, variance, seed, shift):
    memory, y, z, mask = problem
    rotation = torch.from_numpy(ortho_group.rvs(z.shape[1], random_state=seed))
    offset = shift * torch.from_numpy(np.random.default_rng(seed).normal(size=z.shape[1]))
    moved = density_of(memory @ rotation + offset, y, z @ rotation + offset, mask, variance)
    torch.testing.assert_close(
        moved, density_of(memory, y, z, mask, variance), rtol=1e-7, atol=1e-7
    )


@pytest.mark.parametrize("variance", VARIANCES)
@given(problem=problems(bound=1e6, width=32))
def test_float32_is_finite_and_agrees_with_float64(problem, variance):
    memory, y, z, mask = problem
    z.requires_grad_()
    density = density_of(memory, y, z, mask, variance)
    known = mask & (torch.bincount(y, minlength=mask.shape[1]) > 0)
    assert bool(torch.isfinite(density[known]).all())
    assert bool((density[~known] == -math.inf).all())
    exact = density_of(memory.double(), y, z.detach().double(), mask, variance)[known]
    # A mean of n numbers up to Z is off by n eps Z at most: that bounds every distance's error.
    top = max(float(memory.abs().max()) if len(memory) else 0.0, float(z.detach().abs().max()))
    slip = len(memory) * EPS * top * math.sqrt(z.shape[1])
    far = (2 * exact.abs() + 10).sqrt()
    bound = 2 * far * slip + slip**2 + 20 * EPS * (exact.abs() + 10)
    assert bool(((density[known].double() - exact).abs() <= bound).all())
    terms, _ = log_conditional_marginal_likelihood(density, known.float().argmax(dim=1))
    assert bool(torch.isfinite(terms).all())
    (gradient,) = torch.autograd.grad(terms.sum(), z, allow_unused=True)
    assert gradient is None or bool(torch.isfinite(gradient).all())


@pytest.mark.parametrize("variance", VARIANCES)
@given(
    memory=arrays(np.int64, (3, 4, 5), elements=st.integers(-8, 8)),
    z=arrays(np.int64, (2, 5), elements=st.integers(-8, 8)),
)
def test_small_differences_far_from_the_origin_survive_float32(memory, z, variance):
    """Quarters around 1e6 and means of four are exact in float32; squares of 1e6 are not."""
    memory, z = (1e6 + torch.from_numpy(a).double() / 4 for a in (memory.reshape(12, 5), z))
    y, mask = torch.arange(3).repeat_interleave(4), torch.ones(2, 3, dtype=torch.bool)
    single = torch.softmax(density_of(memory.float(), y, z.float(), mask, variance), dim=1)
    double = torch.softmax(density_of(memory, y, z, mask, variance), dim=1)
    torch.testing.assert_close(single.double(), double, rtol=0, atol=1e-5)


@given(problem=problems())
def test_gradient_is_that_of_a_linear_head(problem):
    """With constant means: rows mean_c / s2, biases -|mean_c|^2 / (2 s2), s2 shared by a row."""
    memory, y, z, mask = problem
    z.requires_grad_()
    density = density_of(memory, y, z, mask, "shared")
    labels = torch.isfinite(density).int().argmax(dim=1)
    terms, exists = log_conditional_marginal_likelihood(density, labels)
    assume(len(terms) > 0)
    (gradient,) = torch.autograd.grad(-terms.sum(), z)

    expected = torch.zeros_like(gradient)
    for b in exists.nonzero().flatten().tolist():
        classes = [c for c in range(mask.shape[1]) if mask[b, c] and (y == c).any()]
        means = torch.stack([memory[y == c].mean(dim=0) for c in classes])
        s2 = 1 + 1 / np.mean([(y == c).sum() for c in classes])
        weight, bias = means / s2, -means.square().sum(dim=1) / (2 * s2)
        one = z[b].detach().requires_grad_()
        logits = torch.nn.functional.linear(one, weight, bias)
        label = torch.tensor(classes.index(int(labels[b])))
        loss = torch.nn.functional.cross_entropy(logits, label)
        (expected[b],) = torch.autograd.grad(loss, one)
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-9)
