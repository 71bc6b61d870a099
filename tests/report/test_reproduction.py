"""Differences on paired seeds, beside the paper's numbers."""

import re

import pytest

from deepccg.records import Estimate, Interval
from deepccg.report.reproduction import comparison_table
from deepccg.reproduce import CellResult, Column, Variant

COLUMN = Column("cifar10", "disjoint", "task")


def answer(method: str, mean: float, difference: Interval | None) -> CellResult:
    """Three seeds with a standard error of one point."""
    spread = 0.01 * 3**0.5
    values = {0: mean - spread, 1: mean, 2: mean + spread}
    return CellResult(Variant(method), COLUMN, values, None, difference)


def cells(table, label: str) -> list[str]:
    return next([cell.text for cell in row.cells] for row in table.rows if row.label == label)


def test_numbers_are_shown_in_points() -> None:
    answers = [
        answer("er", 0.5, None),
        answer("deepccg", 0.6, Interval(0.1, 0.05, 0.151, 3)),
        CellResult(Variant("gss"), COLUMN, {}, Estimate(0.7, 0.02, 3), None),
        answer("multi-task", 0.9, Interval(0.4, None, None, 1)),
    ]
    table = comparison_table("Table", answers, "ER")
    headings = [column.text for column in table.columns]
    assert headings == ["Accuracy", "Paper", "Minus ER [95 %]", "Seeds"]
    assert cells(table, "ER") == ["50.0 ± 1.0", "-", "-", "3"]
    assert cells(table, "DeepCCG") == ["60.0 ± 1.0", "-", "+10.0 [+5.0, +15.1]", "3"]
    assert cells(table, "GSS") == ["-", "70.0 ± 2.0", "-", "0"]
    assert cells(table, "Multi-Task") == ["90.0 ± 1.0", "-", "+40.0", "3"]
    best = [row.label for row in table.rows if row.cells[0].best]
    assert best == ["DeepCCG"]  # an upper bound is no competitor
    assert [row.note for row in table.rows] == ["", "", "", "offline"]
    assert table.terminal().row_count == 4


@pytest.mark.parametrize(
    ("seeds", "low", "starred"),
    [(3, 0.05, False), (4, 0.05, False), (5, 0.05, True), (5, -0.01, False), (9, 0.01, True)],
)
def test_below_five_seeds_nothing_is_said_of_an_interval(
    seeds: int, low: float, starred: bool
) -> None:
    answers = [answer("er", 0.5, None), answer("deepccg", 0.6, Interval(0.1, low, 0.2, seeds))]
    table = comparison_table("Table", answers, "ER")
    assert cells(table, "DeepCCG")[1].endswith("*") == starred
    text = table.markdown().lower()
    assert not re.search("signific", text)
    assert ("excludes 0" in text) == (seeds >= 5)


def test_a_note_comes_first() -> None:
    table = comparison_table("Table", [answer("er", 0.5, None)], "ER", "quick look")
    assert table.caption.startswith("quick look. Percent")
