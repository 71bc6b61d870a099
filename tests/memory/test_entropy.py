"""The nearest-neighbour entropy against SciPy's trees and against removing points one by one."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import KDTree

from deepccg.memory.policies import TINY, entropy_without_each, pairwise_distances

sizes = st.integers(3, 12)
seeds = st.integers(0, 2**20)


def points_of(count, seed, features=3):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(count, features, generator=generator, dtype=torch.float64)
    return points.round(decimals=seed % 3)  # ties and copies, at few decimals


def tree_entropy(points):
    distance, _ = KDTree(points).query(points, k=2)
    return np.log(distance[:, 1] + TINY).mean()


@given(count=sizes, seed=seeds)
def test_all_removals_at_once_are_the_removals_one_by_one(count, seed):
    points = points_of(count, seed)
    found = entropy_without_each(pairwise_distances(points, points))
    each = [tree_entropy(np.delete(points.numpy(), i, axis=0)) for i in range(count)]
    np.testing.assert_allclose(found, each, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_with_at_most_one_point_left_there_is_nothing_to_estimate(count):
    assert entropy_without_each(torch.ones(count, count)).tolist() == [0.0] * count


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_distance_depends_on_its_two_points_only(dtype):
    points = torch.randn(37, 101, generator=torch.Generator().manual_seed(0)).to(dtype)
    together = pairwise_distances(points, points)
    assert torch.equal(together, together.T)
    for i, point in enumerate(points):
        assert torch.equal(
            pairwise_distances(point[None], points[i % 7 :])[0], together[i, i % 7 :]
        )
    torch.testing.assert_close(together, (points[:, None] - points).norm(dim=2))
