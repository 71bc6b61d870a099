"""Embeddings of norm 1e4 and 1e-6, in single precision, against a computation of its own in double.

The reference is written with SciPy from the model alone: a Gaussian for each class around the mean
of its examples. Both get the same single-precision numbers, so what differs is the arithmetic.
"""

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy.special import log_softmax
from scipy.stats import multivariate_normal

from deepccg.core import Batch, Task
from deepccg.gaussian import (
    Candidates,
    class_posterior,
    fitted_scale,
    greedy_selection,
    leave_one_out_distances,
    log_conditional_marginal_likelihood,
    log_predictive_density,
    squared_distances,
    swap_selection,
)
from deepccg.methods import DeepCCG
from deepccg.networks import Flatten

CLASSES, DIM, EACH = 4, 16, 6
# How the embeddings lie: all of that size, or one far offset with a spread of one.
KINDS = {
    "large": lambda z: 1e4 * z / np.linalg.norm(z, axis=1, keepdims=True),
    "tiny": lambda z: 1e-6 * z / np.linalg.norm(z, axis=1, keepdims=True),
    "far": lambda z: z + 1e4 / np.sqrt(DIM),
    "small spread": lambda z: 1e-6 * z,
    "large spread": lambda z: 1e4 * z,
}
kinds = pytest.mark.parametrize("kind", KINDS)
seeds = pytest.mark.parametrize("seed", range(3))


def embeddings(kind: str, seed: int, count: int = CLASSES * EACH) -> np.ndarray:
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(CLASSES, DIM))
    z = centres[np.arange(count) % CLASSES] + 0.7 * rng.normal(size=(count, DIM))
    return KINDS[kind](z).astype(np.float32)


def labels(count: int = CLASSES * EACH) -> np.ndarray:
    return np.arange(count) % CLASSES


def reference_scale(z: np.ndarray, y: np.ndarray) -> float:
    """1 / sqrt of the Frobenius norm of the pooled within-class covariance."""
    z = z.astype(np.float64)
    deviation = np.concatenate([z[y == c] - z[y == c].mean(axis=0) for c in range(CLASSES)])
    within = deviation.T @ deviation / (len(y) - CLASSES)
    whole = np.cov(z.T)
    norm = max(np.linalg.norm(within), 0.01 * np.linalg.norm(whole))
    return 1 / np.sqrt(norm)


def reference_log_probabilities(
    query: np.ndarray, z: np.ndarray, y: np.ndarray, scale: float
) -> np.ndarray:
    """Posterior predictive in double precision, every class allowed."""
    query, z = scale * query.astype(np.float64), scale * z.astype(np.float64)
    densities = []
    for c in range(CLASSES):
        mine = z[y == c]
        spread = 1 + 1 / EACH
        gaussian = multivariate_normal(mine.mean(axis=0), spread * np.eye(DIM))
        densities.append(gaussian.logpdf(query))
    return log_softmax(np.stack(densities, axis=1), axis=1)


@kinds
@seeds
def test_the_fitted_scale(kind: str, seed: int) -> None:
    z, y = embeddings(kind, seed), labels()
    posterior = class_posterior(torch.tensor(z), torch.tensor(y), CLASSES)
    found = fitted_scale(torch.tensor(z), torch.tensor(y), posterior)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(reference_scale(z, y), rel=1e-3)


@kinds
@seeds
@pytest.mark.parametrize("variance", ["shared", "per-class"])
def test_the_predictive(kind: str, seed: int, variance: str) -> None:
    z, y, query = embeddings(kind, seed), labels(), embeddings(kind, seed + 50)
    scale = reference_scale(z, y)
    posterior = class_posterior(torch.tensor(z), torch.tensor(y), CLASSES)
    distance = squared_distances(torch.tensor(query), posterior.mean) * scale**2
    mask = torch.ones(len(query), CLASSES, dtype=torch.bool)
    density = log_predictive_density(distance, posterior.count, mask, DIM, variance)
    found = torch.log_softmax(density, dim=1)
    assert found.dtype == torch.float32
    expected = reference_log_probabilities(query, z, y, scale)
    assert torch.isfinite(found).all()
    np.testing.assert_allclose(found.exp(), np.exp(expected), atol=5e-3)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-2)


@kinds
@seeds
def test_the_loss_and_its_gradient(kind: str, seed: int) -> None:
    """Eq. 9 of a batch against itself, each example left out of its own mean."""
    z, y = embeddings(kind, seed), torch.tensor(labels())
    scale = reference_scale(z, labels())

    def loss_of(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        at = torch.tensor(z, dtype=dtype, requires_grad=True)
        distance, count = leave_one_out_distances(at, y, CLASSES)
        mask = torch.ones(len(y), CLASSES, dtype=torch.bool)
        density = log_predictive_density(distance * scale**2, count, mask, DIM, "shared")
        terms, exists = log_conditional_marginal_likelihood(density, y)
        assert exists.all()
        loss = -terms.mean()
        return loss.detach(), torch.autograd.grad(loss, at)[0]

    (loss, gradient), (exact, slope) = loss_of(torch.float32), loss_of(torch.float64)
    assert torch.isfinite(gradient).all()
    assert loss.item() == pytest.approx(exact.item(), rel=1e-2, abs=1e-3)
    error = (gradient.double() - slope).norm() / slope.norm()
    assert error < 1e-2


@kinds
@pytest.mark.parametrize("select", [greedy_selection, swap_selection])
def test_the_selection(kind: str, select: object) -> None:
    """What is kept is, measured in double precision, as good as what double precision keeps."""
    assert callable(select)
    for seed in range(4):
        z = embeddings(kind, seed, count=36)[::CLASSES]  # nine of one class
        kept = {}
        for dtype in (torch.float32, torch.float64):
            pool = torch.tensor(z, dtype=dtype)[None]
            real = torch.ones(1, len(z), dtype=torch.bool)
            candidates = Candidates(
                z=pool,
                real=real,
                stored=real & False,
                target=pool.mean(dim=1),
                quota=torch.tensor([5]),
                seen=torch.tensor([0]),
            )
            keep = select(candidates, torch.Generator().manual_seed(0))
            assert keep.sum() == 5
            kept[dtype] = keep[0].numpy()
        exact = z.astype(np.float64)

        def objective(chosen: np.ndarray, exact: np.ndarray = exact) -> float:
            return float(np.sum((exact[chosen].mean(axis=0) - exact.mean(axis=0)) ** 2))

        best = objective(kept[torch.float64])
        every = [objective(np.array(rows)) for rows in combinations(range(len(z)), 5)]
        assert objective(kept[torch.float32]) <= best + 0.01 * (np.mean(every) - min(every))


@kinds
def test_the_method_itself(kind: str) -> None:
    """DeepCCG on the embeddings as they are, stored, scaled and asked in single precision."""
    z, y, query = embeddings(kind, 0), labels(), embeddings(kind, 1)
    learner = DeepCCG(Flatten(DIM), memory=len(y), classes=range(CLASSES), seed=0)
    task = Task(0, tuple(range(CLASSES)))
    for start in range(0, len(y), 2 * CLASSES):
        rows = slice(start, start + 2 * CLASSES)
        info = learner.learn(Batch(torch.tensor(z[rows]), torch.tensor(y[rows]), task))
        assert np.isfinite(info.loss)
    assert learner.memory.size == len(y)
    found = learner.predict_proba(torch.tensor(query))
    expected = np.exp(reference_log_probabilities(query, z, y, reference_scale(z, y)))
    assert torch.isfinite(found).all()
    np.testing.assert_allclose(found.sum(dim=1), 1, rtol=1e-5)
    np.testing.assert_allclose(found, expected, atol=1e-2)
    assert expected.max(axis=1).mean() > 0.5  # the reference tells the classes apart


@pytest.mark.parametrize("norm", [1e-6, 1.0, 1e4])
def test_the_size_of_embeddings_does_not_matter_to_a_fitted_scale(norm: float) -> None:
    z, y = embeddings("large spread", 3) / np.float32(1e4), labels()
    posterior = class_posterior(torch.tensor(z), torch.tensor(y), CLASSES)
    one = fitted_scale(torch.tensor(z), torch.tensor(y), posterior)
    scaled = torch.tensor(z) * norm
    other = fitted_scale(scaled, torch.tensor(y), class_posterior(scaled, torch.tensor(y), CLASSES))
    assert (other * norm).item() == pytest.approx(one.item(), rel=1e-4)
