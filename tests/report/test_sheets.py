"""One table in four notations, all with the same numbers."""

import csv
import io

import pytest

from deepccg.records import Estimate
from deepccg.report.sheet import Cell, Line, Sheet, best_of, percent_cell

BEST = Cell("50.0 ± 1.0", 50.01, 1.02, best=True)
SHEET = Sheet(
    title="A title_1",
    caption="Percent ± something",
    columns=("Accuracy", "Seeds"),
    lines=(
        Line("ER | 100%", "er", "er-1", "", (BEST, Cell("3", 3))),
        Line("=SGD", "sgd", "sgd-1", "offline", (Cell("-"), Cell("1", 1))),
    ),
)


def test_markdown():
    lines = SHEET.markdown().splitlines()
    assert lines[2:6] == [
        "| Method | Accuracy | Seeds |",
        "| --- | ---: | ---: |",
        r"| ER \| 100% | **50.0 ± 1.0** | 3 |",
        "| =SGD (offline) | - | 1 |",
    ]


def test_latex_prints_what_was_meant():
    text = SHEET.latex()
    assert r"ER \textbar{} 100\% & \textbf{50.0 $\pm$ 1.0} & 3 \\" in text
    assert r"\caption{A title\_1. Percent $\pm$ something}" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_csv_has_numbers_in_full_and_no_formulas():
    head, er, sgd = csv.reader(io.StringIO(SHEET.csv()))
    assert head == ["Method", "Accuracy", "Accuracy, standard error", "Seeds"]
    assert er == ["ER | 100%", "50.01", "1.02", "3"]
    assert sgd == ["'=SGD (offline)", "", "", "1"]


def test_columns_without_a_value_are_left_out():
    line = Line("a", "a", "a", "", (Cell("-"), Cell("1", 1.0)))
    sheet = Sheet("t", "c", ("Empty", "Full"), (line, line)).without_empty_columns()
    assert sheet.columns == ("Full",)
    assert [cell.text for cell in sheet.lines[0].cells] == ["1"]


@pytest.mark.parametrize(
    ("means", "best"),
    [
        ([0.5, 0.6], [False, True]),
        ([0.5001, 0.5004], [True, True]),
        ([0.5, None], [False, False]),
        ([], []),
    ],
)
def test_best_as_far_as_it_is_shown(means, best):
    assert best_of([None if m is None else Estimate(m, None, 1) for m in means]) == best


def test_a_cell_in_percent():
    cell = percent_cell(Estimate(0.25, 0.01, 3), best=True, paper=Estimate(0.3, 0.02, 3))
    assert (cell.text, cell.value, cell.error, cell.best) == ("25.0 ± 1.0", 25.0, 1.0, True)
    assert cell.beside == "30.0 ± 2.0"
    assert percent_cell(None).text == "-"
