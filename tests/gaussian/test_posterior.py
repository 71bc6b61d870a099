"""Posteriors over class means against the conjugate update, and the subset nearest in KL."""

import math
from itertools import combinations

import numpy as np
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.distributions import MultivariateNormal, kl_divergence

from deepccg.gaussian import (
    class_posterior,
    leave_one_out_distances,
    squared_distances,
)

VALUES = st.floats(-5, 5)


@st.composite
def labelled(draw, min_examples=0):
    """Embeddings [M, D], class columns [M], number of classes."""
    size, dim, n_classes = draw(st.integers(min_examples, 10)), draw(st.integers(1, 4)), 4
    z = draw(arrays(np.float64, (size, dim), elements=VALUES))
    y = draw(arrays(np.int64, size, elements=st.integers(0, n_classes - 1)))
    return torch.from_numpy(z), torch.from_numpy(y), n_classes


@given(labelled())
def test_posterior_is_the_conjugate_update_of_a_very_wide_prior(data):
    z, y, n_classes = data
    posterior = class_posterior(z, y, n_classes)
    dim = z.shape[1]
    prior_precision = np.eye(dim) / 1e10
    for c in range(n_classes):
        own = z[y == c].numpy()
        assert posterior.count[c] == len(own)
        if len(own) == 0:
            assert not posterior.mean[c].any()
            continue
        precision = prior_precision + sum(np.eye(dim) for _ in own)
        mean = np.linalg.solve(precision, sum(own))
        np.testing.assert_allclose(posterior.mean[c], mean, atol=1e-8)
        np.testing.assert_allclose(
            np.eye(dim) / float(posterior.count[c]), np.linalg.inv(precision)
        )


@given(labelled(min_examples=1))
def test_squared_distances_are_sums_of_squares(data):
    z, _, _ = data
    rows = z.tolist()
    expected = [[math.dist(u, v) ** 2 for v in rows] for u in rows]
    torch.testing.assert_close(squared_distances(z, z), torch.tensor(expected, dtype=z.dtype))


def test_squared_distances_have_a_gradient_at_zero_distance():
    z = torch.ones(1, 3, requires_grad=True)
    (gradient,) = torch.autograd.grad(squared_distances(z, torch.ones(2, 3)).sum(), z)
    assert torch.equal(gradient, torch.zeros(1, 3))


@given(labelled(min_examples=1))
def test_leave_one_out_distances_by_loops(data):
    z, y, n_classes = data
    z.requires_grad_()
    distance, count = leave_one_out_distances(z, y, n_classes)
    expected_gradient = torch.zeros_like(z)
    for i in range(len(z)):
        for c in range(n_classes):
            others = [z[j].detach() for j in range(len(z)) if y[j] == c and j != i]
            assert count[i, c] == len(others)
            if others:
                difference = z[i].detach() - torch.stack(others).mean(dim=0)
                torch.testing.assert_close(distance[i, c].detach(), difference @ difference)
                expected_gradient[i] += 2 * difference
    known = torch.where(count > 0, distance, 0.0).sum()
    (gradient,) = torch.autograd.grad(known, z)
    # Were the means not constants, each would pull back on the examples it is made of.
    torch.testing.assert_close(gradient, expected_gradient)


@given(arrays(np.float64, (6, 2), elements=VALUES), st.integers(1, 5))
def test_smallest_kl_is_nearest_mean(values, size):
    """Eq. 10: over subsets of one size, KL and squared distance have the same minimiser."""
    z = torch.from_numpy(values)
    subsets = [list(s) for s in combinations(range(6), size)]
    mean = torch.stack([z[s].mean(dim=0) for s in subsets])
    distance = (mean - z.mean(dim=0)).square().sum(dim=1)
    smallest = distance.sort().values
    assume(len(smallest) == 1 or smallest[1] - smallest[0] > 1e-9)
    eye = torch.eye(2, dtype=z.dtype)
    full = MultivariateNormal(z.mean(dim=0), eye / 6)
    kl = kl_divergence(full, MultivariateNormal(mean, eye / size))
    assert kl.argmin() == distance.argmin()
