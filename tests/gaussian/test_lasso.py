"""The published relaxation: its gradient, its dead point, its uninformative minimiser."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor

from deepccg.gaussian import Candidates, LassoConfig, lasso_selection
from deepccg.gaussian.selection import lasso_gradient


def eq12(z: Tensor, target: Tensor, weight: Tensor, penalty: float) -> Tensor:
    """Eq. 12 for one class; the norm of non-negative weights is their sum."""
    norm = weight.sum()
    fit = target - sum(w * row for w, row in zip(weight, z, strict=True)) / norm
    return penalty * norm + fit.square().sum()


def autograd_of_eq12(z: Tensor, target: Tensor, weight: Tensor, penalty: float) -> Tensor:
    weight = weight.detach().requires_grad_()
    return torch.autograd.grad(eq12(z, target, weight, penalty), weight)[0]


def gram_of(z: Tensor, target: Tensor) -> Tensor:
    return ((z - target) @ (z - target).T)[None]


def random_set(seed: int, size: int, dim: int) -> tuple[Tensor, Tensor]:
    """Candidates, and weights well inside (0, 1)."""
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.05, 0.95, size)
    return torch.from_numpy(rng.normal(size=(size, dim))), torch.from_numpy(weight)


def candidates(z: Tensor, stored: int, quota: int, target: Tensor | None = None) -> Candidates:
    real = torch.ones(1, len(z), dtype=torch.bool)
    in_memory = (torch.arange(len(z)) < stored)[None]
    mean = z.mean(dim=0) if target is None else target
    return Candidates(
        z[None], real, in_memory, mean[None], torch.tensor([quota]), torch.tensor([stored])
    )


@given(
    seed=st.integers(0, 2**31),
    size=st.integers(1, 9),
    dim=st.integers(1, 6),
    penalty=st.floats(0, 1),
    shift=st.floats(-2, 2),
)
def test_gradient_is_autograd_of_eq12(seed, size, dim, penalty, shift):
    z, weight = random_set(seed, size, dim)
    target = z.mean(dim=0) + shift
    gradient = lasso_gradient(gram_of(z, target), weight[None], penalty)[0]
    expected = autograd_of_eq12(z, target, weight, penalty)
    torch.testing.assert_close(gradient, expected, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**31), size=st.integers(2, 12), level=st.floats(0.05, 1))
def test_equal_weights_are_a_dead_point(seed, size, level):
    """The weighted mean is the target already: only the penalty is left, equal for everyone."""
    z, _ = random_set(seed, size, 5)
    weight = torch.full((1, size), level, dtype=z.dtype)
    gradient = lasso_gradient(gram_of(z, z.mean(dim=0)), weight, 0.01)
    np.testing.assert_allclose(gradient, 0.01, atol=1e-12)


@given(seed=st.integers(0, 2**31), size=st.integers(2, 12))
def test_descent_returns_to_equal_weights(seed, size):
    """Affinely independent candidates have one weighting with zero error, the uniform one."""
    z, weight = random_set(seed, size, 80)
    gram, weight = gram_of(z, z.mean(dim=0)), weight[None]
    assert float(weight.std() / weight.mean()) > 1e-3
    gram = gram / gram[0].diagonal().mean()
    for _ in range(200):
        step = 0.2 * weight.sum() ** 2  # the curvature falls with the square of the norm
        weight = (weight - step * lasso_gradient(gram, weight, 0.0)).clamp(0, 1)
    assert float(weight.std(correction=0) / weight.mean()) < 1e-6


@pytest.mark.parametrize("constraint", ["clip", "sigmoid"])
@pytest.mark.parametrize("normalise", [True, False])
@given(seed=st.integers(0, 2**31), size=st.integers(3, 8), steps=st.integers(0, 15))
def test_selection_descends_eq12_from_its_start(constraint, normalise, seed, size, steps):
    """The same descent by autograd on explicit embeddings, from the same random start."""
    z, _ = random_set(seed, size, 4)
    z, quota = 3 * z, size // 2
    target = z.mean(dim=0) + 0.5
    config = LassoConfig(steps=steps, lr=0.3, constraint=constraint, normalise=normalise)
    generator = torch.Generator().manual_seed(seed)
    keep = lasso_selection(candidates(z, 0, quota, target), config, generator)[0]

    weight = torch.rand(1, size, generator=torch.Generator().manual_seed(seed))[0].double()
    spread = (z - target).square().mean().sqrt() if normalise else 1.0
    for _ in range(steps):
        gradient = autograd_of_eq12(z / spread, target / spread, weight, config.penalty)
        if constraint == "clip":
            weight = (weight - config.lr * gradient).clamp(0, 1)
        else:
            logit = torch.log(weight / (1 - weight))
            weight = torch.sigmoid(logit - config.lr * gradient * weight * (1 - weight))
    ranked = weight.sort(descending=True)
    assume(ranked.values[quota - 1] - ranked.values[quota] > 1e-6)
    assert set(keep.nonzero().flatten().tolist()) == set(ranked.indices[:quota].tolist())


@given(st.integers(2, 6), st.integers(1, 4))
def test_started_from_memory_and_not_descended_it_keeps_memory(stored, new):
    z, _ = random_set(0, stored + new, 4)
    config = LassoConfig(start="memory", steps=0)
    keep = lasso_selection(candidates(z, stored, stored), config, torch.Generator())
    assert keep[0].tolist() == [True] * stored + [False] * new


def test_the_transient_is_better_than_random():
    """Ten of twelve in 80 dimensions: what a hundred small steps leave of a random order."""
    generator = torch.Generator().manual_seed(0)
    lasso, random = [], []
    for seed in range(60):
        z, _ = random_set(seed, 12, 80)
        mean = z.mean(dim=0)
        keep = lasso_selection(candidates(z, 10, 10), LassoConfig(), generator)[0]
        lasso.append(float((z[keep].mean(dim=0) - mean).square().sum()))
        drawn = torch.randperm(12, generator=generator)[:10]
        random.append(float((z[drawn].mean(dim=0) - mean).square().sum()))
    assert np.mean(lasso) < 0.95 * np.mean(random)


def test_same_seed_same_choice_and_padding_changes_nothing():
    z, _ = random_set(0, 8, 4)
    config = LassoConfig(start="memory", steps=10)
    alone = candidates(z, 5, 5)
    first = lasso_selection(alone, config, torch.Generator().manual_seed(1))
    assert torch.equal(first, lasso_selection(alone, config, torch.Generator().manual_seed(1)))
    padding = torch.full((1, 3, 4), torch.nan, dtype=z.dtype)
    none = torch.zeros(1, 3, dtype=torch.bool)
    padded = Candidates(
        torch.cat([alone.z, padding], dim=1),
        torch.cat([alone.real, none], dim=1),
        torch.cat([alone.stored, none], dim=1),
        alone.target,
        alone.quota,
        alone.seen,
    )
    keep = lasso_selection(padded, config, torch.Generator().manual_seed(2))
    assert torch.equal(keep, torch.cat([first, none], dim=1))
