"""A head that grows and never forgets a row."""

import math
from itertools import accumulate

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from deepccg.learners.heads import GrowingLinear


@given(
    dim=st.integers(1, 6),
    sizes=st.lists(st.integers(0, 12), min_size=1, max_size=5),
    seed=st.integers(0, 2**31),
)
def test_old_rows_stay_bit_for_bit(dim, sizes, seed):
    head, generator = GrowingLinear(dim), torch.Generator().manual_seed(seed)
    rows = 0
    for size in sizes:
        weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
        assert head.grow(size, generator) == (size > rows)
        assert torch.equal(head.weight[:rows], weight)
        assert torch.equal(head.bias[:rows], bias)
        rows = max(rows, size)
        assert head.weight.shape == (rows, dim)
        assert head.bias.shape == (rows,)
        assert {id(p) for p in head.parameters()} == {id(head.weight), id(head.bias)}
        # As nn.Linear draws: uniform within 1/sqrt(D).
        assert all(bool((p.abs() <= 1 / math.sqrt(dim)).all()) for p in head.parameters())


@given(steps=st.lists(st.integers(1, 5), min_size=1, max_size=4), seed=st.integers(0, 2**31))
def test_same_seed_same_rows_and_it_computes_what_linear_computes(steps, seed):
    heads = [GrowingLinear(3), GrowingLinear(3)]
    for head in heads:
        generator = torch.Generator().manual_seed(seed)
        for total in accumulate(steps):
            head.grow(total, generator)
    assert torch.equal(heads[0].weight, heads[1].weight)
    linear = nn.Linear(3, sum(steps))
    linear.load_state_dict(heads[0].state_dict())
    z = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(heads[0](z), linear(z))


def test_drawn_rows_spread_over_the_whole_interval():
    head = GrowingLinear(4)
    head.grow(2000, torch.Generator().manual_seed(0))
    values = torch.cat([head.weight.flatten(), head.bias]).detach() * 2  # now within [-1, 1]
    assert abs(float(values.mean())) < 4 / math.sqrt(3 * len(values))
    assert abs(float(values.square().mean()) - 1 / 3) < 0.02


def test_growing_keeps_the_precision():
    head = GrowingLinear(2).double()
    head.grow(3, torch.Generator())
    assert head(torch.zeros(1, 2, dtype=torch.float64)).dtype == torch.float64
