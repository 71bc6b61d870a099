"""Search spaces, and searching them by a score without runs."""

import math
from collections.abc import Sequence
from itertools import pairwise

import pytest

from deepccg.core import InputError
from deepccg.methods import METHODS
from deepccg.tune import Choice, Range, parse_axis
from deepccg.tune.search import Point, grid_points, grid_search, optuna_search

EWC = METHODS["ewc"].Config
AXES = [Range("lr", 1e-4, 1.0, "log"), Choice("kind", ("good", "bad"))]


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


class Peak:
    """Highest at lr = 0.03 and ``good``; keeps the points it scored."""

    def __init__(self, dies_after: int | None = None) -> None:
        self.asked: list[Point] = []
        self._dies_after = dies_after

    def __call__(self, points: Sequence[Point]) -> list[float | None]:
        self.asked += points
        if self._dies_after is not None and len(self.asked) > self._dies_after:
            raise KeyboardInterrupt
        return [self.at(point) for point in points]

    @staticmethod
    def at(point: Point) -> float | None:
        if point["lr"] > 0.5:
            return None  # it diverged
        return -abs(math.log10(point["lr"] / 0.03)) - 2 * (point["kind"] == "bad")


def test_optuna_finds_the_peak_reproducibly() -> None:
    first, again = Peak(), Peak()
    points = optuna_search(AXES, first, trials=40)
    assert points == first.asked
    assert len(points) == 40
    assert optuna_search(AXES, again, trials=40) == points
    best = max(points, key=lambda point: Peak.at(point) or -math.inf)
    assert best["kind"] == "good"
    assert 0.01 < best["lr"] < 0.1


def test_an_interrupted_search_repeats_its_points() -> None:
    short = Peak(dies_after=7)
    with pytest.raises(KeyboardInterrupt):
        optuna_search(AXES, short, trials=20)
    whole = Peak()
    optuna_search(AXES, whole, trials=20)
    assert whole.asked[:8] == short.asked


def test_several_points_can_be_scored_together() -> None:
    asked: list[int] = []

    def score(points: Sequence[Point]) -> list[float | None]:
        asked.append(len(points))
        return [Peak.at(point) for point in points]

    assert len(optuna_search(AXES, score, trials=7, together=3)) == 7
    assert asked == [3, 3, 1]


def test_suggested_numbers_are_short_and_within_their_range() -> None:
    axes = [Range("lr", 1e-4, 1.0, "log"), Range("n", 2, 5, "int"), Range("x", -1, 1, "lin")]
    points = optuna_search(axes, lambda points: [0.0] * len(points), trials=12)
    for point in points:
        assert point["lr"] == float(f"{point['lr']:.4g}")
        assert 1e-4 <= point["lr"] <= 1
        assert point["n"] in (2, 3, 4, 5)
        assert -1 <= point["x"] <= 1


def test_a_grid_is_scored_at_once() -> None:
    asked: list[int] = []

    def score(points: Sequence[Point]) -> list[float | None]:
        asked.append(len(points))
        return [None] * len(points)

    assert len(grid_search([Choice("a", (1, 2, 3)), Choice("b", ("x", "y"))], score)) == 6
    assert asked == [6]
