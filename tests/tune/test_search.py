"""Searching, by a score without runs."""

import math
from collections.abc import Sequence

import pytest

from deepccg.tune import Choice, Range
from deepccg.tune.search import Point, grid_search, optuna_search

AXES = [Range("lr", 1e-4, 1.0, "log"), Choice("kind", ("good", "bad"))]


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
