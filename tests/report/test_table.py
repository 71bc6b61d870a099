"""One table in five notations, all with the same numbers."""

import csv
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from deepccg.records import Estimate
from deepccg.report.table import Cell, Column, Table, TableRow, best_of, percent_cell

BEST = Cell("50.0 ± 1.0", 50.01, 1.02, best=True)
TABLE = Table(
    title="A title_1",
    caption="Percent ± something",
    columns=(Column("Accuracy"), Column("Seeds")),
    rows=(
        TableRow("ER | 100%", (BEST, Cell("3", 3)), method="er"),
        TableRow("=SGD", (Cell("-"), Cell("1", 1)), "offline", "sgd"),
    ),
)


def test_markdown():
    lines = TABLE.markdown().splitlines()
    assert lines[2:6] == [
        "| Method | Accuracy | Seeds |",
        "| --- | ---: | ---: |",
        r"| ER \| 100% | **50.0 ± 1.0** | 3 |",
        "| =SGD (offline) | - | 1 |",
    ]


def test_the_terminal_shows_labels_as_text_and_the_best_in_bold():
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="standard")
    console.print(replace(TABLE, columns=(Column("Accu-\nracy"), Column("Seeds"))).terminal())
    text = console.file.getvalue()
    assert "\x1b[1m50.0 ± 1.0\x1b" in text
    lines = [line.split() for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()]
    heading = next(at for at, line in enumerate(lines) if "Method" in line)
    assert lines[heading - 1 : heading + 1] == [["Accu-"], ["Method", "racy", "Seeds"]]
    assert ["=SGD", "(offline)", "-", "1"] in lines


def test_html_escapes_everything_and_carries_the_filters():
    evil = "<b>\"&'"
    column = Column(evil, detail=evil, link="key", setting=evil)
    row = TableRow(evil, (Cell(evil, best=True, paper=evil),), note=evil, method=evil)
    page = Table("title", evil, (column,), (row,)).html(evil, {evil: 3}, "lead")
    escaped = "&lt;b&gt;&#34;&amp;&#39;"
    assert "<b>" not in page
    assert '<table class="lead">\n<thead><tr><th scope="col">Method</th>' in page
    assert (
        f'<th scope="col" class="number" data-setting="{escaped}"><a href="#key">{escaped}</a> '
        f"<small>{escaped}</small></th>"
    ) in page
    assert f'<tr data-method="{escaped}" data-label="{escaped}"><th scope="row">' in page
    assert '<span class="key s3"></span>' in page
    assert f'<small class="note">{escaped}</small>' in page
    assert f'class="number best"><strong>{escaped}</strong>' in page
    assert f'<small class="beside">paper {escaped}</small>' in page
    assert page.endswith(f'<p class="caption">{escaped}</p>')


def test_words_are_set_to_the_left():
    row = TableRow("er", (Cell("a | b"),))
    table = Table("", "caption", (Column("Note", words=True),), (row,))
    assert table.markdown() == "| Method | Note |\n| --- | --- |\n| er | a \\| b |\n\ncaption\n"
    assert r"\begin{tabular}{ll}" in table.latex()


def test_latex_prints_what_was_meant():
    text = TABLE.latex()
    assert r"ER \textbar{} 100\% & \textbf{50.0 $\pm$ 1.0} & 3 \\" in text
    assert r"\caption{A title\_1. Percent $\pm$ something}" in text
    assert text.count(r"\begin{") == text.count(r"\end{") == 2


def test_csv_has_numbers_in_full_and_no_formulas():
    head, er, sgd = csv.reader(io.StringIO(TABLE.csv()))
    assert head == ["Method", "Accuracy", "Accuracy, standard error", "Seeds"]
    assert er == ["ER | 100%", "50.01", "1.02", "3"]
    assert sgd == ["'=SGD (offline)", "", "", "1"]


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
    assert cell.paper == "30.0 ± 2.0"
    assert percent_cell(None).text == "-"
