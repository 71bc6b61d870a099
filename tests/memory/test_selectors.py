"""What every selector promises, whatever it optimises; and how a memory is shared."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.gaussian import (
    Candidates,
    LassoConfig,
    greedy_selection,
    lasso_selection,
    swap_selection,
)
from deepccg.memory import balanced_random, class_balanced_reservoir, class_quotas

SELECTORS = {
    "greedy": greedy_selection,
    "swap": swap_selection,
    "random": balanced_random,
    "reservoir": class_balanced_reservoir,
    **{
        f"lasso-{start}-{constraint}": lambda candidates, generator, s=start, c=constraint: (
            lasso_selection(candidates, LassoConfig(steps=5, start=s, constraint=c), generator)
        )
        for start in ("random", "memory", "constant")
        for constraint in ("clip", "sigmoid")
    },
}


@st.composite
def candidate_sets(draw):
    """Classes with some stored and some new candidates (many of them equal), and padding."""
    n_classes, dim = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    stored = [draw(st.integers(0, 5)) for _ in range(n_classes)]
    new = [draw(st.integers(0 if m else 1, 4)) for m in stored]
    longest = max(m + n for m, n in zip(stored, new, strict=True)) + draw(st.integers(0, 2))
    place = torch.arange(longest)
    real = torch.stack([place < m + n for m, n in zip(stored, new, strict=True)])
    in_memory = torch.stack([place < m for m in stored])
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    z = torch.from_numpy(rng.integers(-2, 3, size=(n_classes, longest, dim)).astype(np.float32))
    target = (z * real[:, :, None]).sum(dim=1) / real.sum(dim=1, keepdim=True)
    quota = torch.tensor([draw(st.integers(0, 7)) for _ in range(n_classes)])
    seen = torch.tensor([m + draw(st.integers(0, 20)) for m in stored])
    return Candidates(z, real, in_memory, target, quota, seen)


@pytest.mark.parametrize("name", SELECTORS)
@given(candidates=candidate_sets(), seed=st.integers(0, 2**31))
def test_keeps_real_candidates_up_to_the_quota(name, candidates, seed):
    before = {k: v.clone() for k, v in vars(candidates).items()}
    keep = SELECTORS[name](candidates, torch.Generator().manual_seed(seed))
    assert keep.shape == candidates.real.shape
    assert keep.dtype == torch.bool
    assert not bool((keep & ~candidates.real).any())
    expected = torch.minimum(candidates.quota, candidates.real.sum(dim=1))
    assert keep.sum(dim=1).tolist() == expected.tolist()
    everything = candidates.real.sum(dim=1) <= candidates.quota
    assert torch.equal(keep[everything], candidates.real[everything])
    again = SELECTORS[name](candidates, torch.Generator().manual_seed(seed))
    assert torch.equal(keep, again)
    assert all(torch.equal(before[k], v) for k, v in vars(candidates).items())


def test_random_subsets_are_equally_likely():
    runs = 3000
    real = torch.ones(runs, 5, dtype=torch.bool)
    z = torch.zeros(runs, 5, 1)
    quota = torch.full((runs,), 2)
    candidates = Candidates(z, real, ~real, z[:, 0], quota, torch.zeros_like(quota))
    keep = balanced_random(candidates, torch.Generator().manual_seed(0))
    code = (keep * torch.tensor([1, 2, 4, 8, 16])).sum(dim=1)
    counts = code.unique(return_counts=True)[1].numpy()
    assert len(counts) == 10
    assert np.abs(counts - 300).max() < 4.5 * np.sqrt(300 * 0.9)


@given(st.integers(0, 500), st.integers(1, 100))
def test_quotas_share_everything_and_favour_the_first(total, n_classes):
    quotas = class_quotas(total, n_classes)
    assert len(quotas) == n_classes
    assert sum(quotas) == total
    assert max(quotas) - min(quotas) <= 1
    assert quotas == sorted(quotas, reverse=True)
    # One place more goes to the first class that has fewer: no class ever loses by it.
    larger = class_quotas(total + 1, n_classes)
    assert [b - a for a, b in zip(quotas, larger, strict=True)].index(1) == total % n_classes


def test_quotas_of_no_class_are_none():
    assert class_quotas(10, 0) == []
