"""Parsing of search spaces."""

import math
from itertools import pairwise

import pytest

from deepccg.core import InputError
from deepccg.methods import METHODS
from deepccg.tune import Choice, Range, parse_axis
from deepccg.tune.search import grid_points

EWC = METHODS["ewc"].Config


@pytest.mark.parametrize(
    ("text", "axis"),
    [
        ("strength=0.1,1,10", Choice("method.strength", (0.1, 1, 10))),
        ("method.lr=1e-3", Choice("method.lr", (0.001,))),
        ("network.affine=true,false", Choice("network.affine", (True, False))),
        (" reduction = mean, sum ", Choice("method.reduction", ("mean", "sum"))),
        ("strength=log:1e-3:1e3", Range("method.strength", 0.001, 1000.0, "log")),
        ("memory_per_class=int:5:30:6", Range("memory_per_class", 5.0, 30.0, "int", 6)),
        ("lr=lin:0.1:0.2:3", Range("method.lr", 0.1, 0.2, "lin", 3)),
    ],
)
def test_axes_are_parsed(text: str, axis: Choice | Range) -> None:
    assert parse_axis(text, EWC) == axis


@pytest.mark.parametrize(
    "text",
    ["strength", "=1", "strength=", "lr=log:0:1", "lr=log:1:0.1", "lr=lin:a:b", "lr=log:1",
     "lr=lin:0:1:1", "lr=lin:0:1:2:3", "lr=lin:0:inf", "lr=lin:nan:1", "lr=0.1,0.1"],
)  # fmt: skip
def test_an_invalid_axis_is_rejected(text: str) -> None:
    with pytest.raises(InputError, match="--space"):
        parse_axis(text, EWC)


def test_a_grid_is_every_combination_in_order() -> None:
    axes = [Choice("a", (1, 2)), Range("b", 1.0, 100.0, "log", 3)]
    assert [tuple(point.values()) for point in grid_points(axes)] == [
        (1, 1.0), (1, 10.0), (1, 100.0), (2, 1.0), (2, 10.0), (2, 100.0),
    ]  # fmt: skip


def test_points_of_a_range_are_spaced_by_factor_or_by_number() -> None:
    logarithmic = Range("a", 1e-3, 1e3, "log", 13).values
    ratios = [b / a for a, b in pairwise(logarithmic)]
    assert all(math.isclose(ratio, 10**0.5, rel_tol=1e-3) for ratio in ratios)
    assert Range("a", 1, 4, "int", 4).values == (1, 2, 3, 4)
    assert Range("a", 1, 2, "int", 5).values == (1, 2)  # each once
    with pytest.raises(InputError, match="a grid needs values for a"):
        _ = Range("a", 1, 2, "lin").values
