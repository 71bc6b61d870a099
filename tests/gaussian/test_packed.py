"""A symmetric matrix in half the bytes is the same matrix."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.gaussian.packed import PackedSymmetric, packed_size


@given(st.integers(1, 12), st.integers(1, 6), st.integers(0, 10_000))
def test_grams_add_as_in_the_full_matrix(dim: int, rows: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    packed = PackedSymmetric.zeros(dim, torch.float64, torch.device("cpu"))
    full = torch.zeros(dim, dim, dtype=torch.float64)
    for sign in (1.0, 1.0, -1.0):
        each = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
        packed.add_gram(each, sign)
        full += sign * each.T @ each
    assert len(packed.values) == packed_size(dim) == dim * (dim + 1) // 2
    torch.testing.assert_close(packed.dense(), full)


def test_other_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="no packed symmetric matrix"):
        PackedSymmetric(torch.zeros(7))
