"""The theorem of the paper's appendix, by Monte Carlo.

Under i.i.d. additive shifts of the embeddings the expected squared distance between the mean of a
subset M' and the mean of all candidates is the old one plus nu (1/|M'| - 1/N), nu the sum of the
shift's variances: an amount that does not depend on which subset was chosen.
"""

import numpy as np
import pytest
import torch

from deepccg.gaussian import selection_objective

DRAWS = 20_000
SHIFTS = {
    "normal": lambda rng, shape: rng.normal(2.0, 0.7, size=shape),
    "exponential": lambda rng, shape: rng.exponential(1.5, size=shape) - 4.0,
    "coin": lambda rng, shape: rng.integers(0, 2, size=shape) * 3.0,
}
VARIANCES = {"normal": 0.49, "exponential": 2.25, "coin": 2.25}


def shifted_objectives(z: np.ndarray, chosen: np.ndarray, shift: str, seed: int) -> np.ndarray:
    """|mean(M') - mean(all)|^2 after each of many draws of the shift."""
    rng = np.random.default_rng(seed)
    deviations = np.linspace(0.5, 1.5, z.shape[1])  # the dimensions shift by different amounts
    moved = z + deviations * SHIFTS[shift](rng, (DRAWS, *z.shape))
    weight = np.broadcast_to(chosen.astype(float), moved.shape[:2])
    target = moved.mean(axis=1)
    return selection_objective(*(torch.tensor(a) for a in (moved, weight, target))).numpy()


def agrees(sample: np.ndarray, expectation: float) -> bool:
    """Within four standard errors."""
    error = sample.std(ddof=1) / np.sqrt(len(sample))
    return bool(abs(sample.mean() - expectation) < 4 * error)


@pytest.mark.parametrize("shift", sorted(SHIFTS))
@pytest.mark.parametrize(("size", "kept", "dim"), [(12, 10, 4), (8, 3, 2), (5, 1, 3)])
def test_expected_distance_grows_by_a_constant(shift, size, kept, dim):
    z = np.random.default_rng(size).normal(size=(size, dim))
    chosen = np.arange(size) < kept
    sample = shifted_objectives(z, chosen, shift, seed=kept)
    before = np.sum((z[chosen].mean(axis=0) - z.mean(axis=0)) ** 2)
    nu = VARIANCES[shift] * np.sum(np.linspace(0.5, 1.5, dim) ** 2)
    assert agrees(sample, before + nu * (1 / kept - 1 / size))
    # The check has teeth: it refuses the sum, the first part alone, and one dimension's variance.
    assert not agrees(sample, before + nu * (1 / kept + 1 / size))
    assert not agrees(sample, before)
    assert not agrees(sample, before + nu / dim * (1 / kept - 1 / size))


def test_keeping_everything_stays_exact():
    z = np.random.default_rng(0).normal(size=(6, 3))
    sample = shifted_objectives(z, np.ones(6, dtype=bool), "normal", seed=0)
    np.testing.assert_allclose(sample, 0.0, atol=1e-20)
