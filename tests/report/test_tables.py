"""Leads on paired seeds, beside the paper."""

import re

import pytest

from deepccg.records import Estimate, Interval
from deepccg.report import PairedRow, comparison_table


def row(label: str, mean: float, lead: Interval | None, n: int = 3, **more) -> PairedRow:
    return PairedRow(label, label.lower(), Estimate(mean, 0.01, n), None, lead, **more)


def cells(table, label: str) -> list[str]:
    return next([cell.text for cell in row.cells] for row in table.rows if row.label == label)


def test_numbers_are_shown_in_points() -> None:
    rows = [
        row("ER", 0.5, None),
        row("Ours", 0.6, Interval(0.1, 0.05, 0.151, 3)),
        PairedRow("Missing", "missing", None, Estimate(0.7, 0.02, 3), None),
        row("Bound", 0.9, Interval(0.4, None, None, 1), offline=True),
    ]
    table = comparison_table("Table", rows, "ER")
    assert tuple(column.text for column in table.columns) == (
        "Accuracy",
        "Paper",
        "Minus ER [95 %]",
        "Seeds",
    )
    assert cells(table, "ER") == ["50.0 ± 1.0", "-", "-", "3"]
    assert cells(table, "Ours") == ["60.0 ± 1.0", "-", "+10.0 [+5.0, +15.1]", "3"]
    assert cells(table, "Missing") == ["-", "70.0 ± 2.0", "-", "0"]
    assert cells(table, "Bound") == ["90.0 ± 1.0", "-", "+40.0", "3"]
    best = [row.label for row in table.rows if row.cells[0].best]
    assert best == ["Ours"]  # an upper bound is no competitor
    assert table.terminal().row_count == 4


@pytest.mark.parametrize(
    ("seeds", "low", "starred"),
    [(3, 0.05, False), (4, 0.05, False), (5, 0.05, True), (5, -0.01, False), (9, 0.01, True)],
)
def test_below_five_seeds_nothing_is_said_of_an_interval(
    seeds: int, low: float, starred: bool
) -> None:
    rows = [row("ER", 0.5, None), row("Ours", 0.6, Interval(0.1, low, 0.2, seeds))]
    table = comparison_table("Table", rows, "ER")
    assert cells(table, "Ours")[1].endswith("*") == starred
    told = table.markdown().lower()
    assert not re.search("signific", told)
    assert ("excludes 0" in told) == (seeds >= 5)


def test_a_note_comes_first() -> None:
    table = comparison_table("Table", [row("ER", 0.5, None)], "ER", "quick look")
    assert table.caption.startswith("quick look. Percent")
