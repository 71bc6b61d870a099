"""A table of methods beside the paper's numbers, each with its lead on paired seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from deepccg.records import Estimate, Interval
from deepccg.report.rounding import in_percent
from deepccg.report.sheet import Cell, Line, Sheet, best_of, percent_cell
from deepccg.report.tables import DASH

ENOUGH_SEEDS = 5  # below, an interval is shown and nothing is said of it


@dataclass(frozen=True)
class PairedRow:
    """One method of such a table.

    Args:
        label: What readers call it.
        method: Its name on the command line.
        accuracy: Over the seeds; ``None`` if there is no run.
        paper: The paper's.
        difference: To the reference on paired seeds; ``None`` for the reference itself.
        offline: Whether it is an upper bound and no competitor.
    """

    label: str
    method: str
    accuracy: Estimate | None
    paper: Estimate | None
    difference: Interval | None
    offline: bool = False


def paired_sheet(title: str, rows: Sequence[PairedRow], reference: str, note: str = "") -> Sheet:
    """The table. Missing numbers are dashes.

    Args:
        title: Its heading.
        rows: One for each method.
        reference: The label of what the others are compared with.
        note: A first sentence of the caption.
    """
    with_paper = any(row.paper for row in rows)
    best = best_of([None if row.offline else row.accuracy for row in rows])
    lines = []
    for row, is_best in zip(rows, best, strict=True):
        count = row.accuracy.n if row.accuracy else 0
        cells = [
            percent_cell(row.accuracy, best=is_best),
            *[percent_cell(row.paper)] * with_paper,
            _difference_cell(row.difference),
            Cell(f"{count}", count),
        ]
        remark = "offline" if row.offline else ""
        lines.append(Line(row.label, row.method, row.label, remark, tuple(cells)))
    columns = ("Accuracy", *["Paper"] * with_paper, f"Minus {reference} [95 %]", "Seeds")
    return Sheet(title, _caption(rows, with_paper, note), columns, tuple(lines))


def sheet_table(sheet: Sheet) -> Table:
    """A sheet for the terminal."""
    table = Table(
        title=sheet.title, box=box.SIMPLE_HEAD, caption=sheet.caption, caption_justify="left"
    )
    table.add_column("Method", overflow="fold")
    for column in sheet.columns:
        table.add_column(column, justify="right", no_wrap=True)
    for line in sheet.lines:
        label = f"{line.label} ({line.note})" if line.note else line.label
        cells = [Text(cell.text, "bold" if cell.best else "") for cell in line.cells]
        table.add_row(Text(label), *cells)
    return table


def difference_text(lead: Interval) -> str:
    """Points with their interval; a star where it excludes 0 and rests on enough seeds.

    >>> difference_text(Interval(0.021, 0.004, 0.038, n=5))
    '+2.1 [+0.4, +3.8]*'
    """
    text = in_percent(lead.value, "+")
    if lead.low is not None and lead.high is not None:
        text += f" [{in_percent(lead.low, '+')}, {in_percent(lead.high, '+')}]"
    return text + "*" * _excludes_zero(lead)


def _difference_cell(lead: Interval | None) -> Cell:
    return Cell(difference_text(lead), 100 * lead.value) if lead else Cell(DASH)


def _excludes_zero(lead: Interval) -> bool:
    if lead.n < ENOUGH_SEEDS or lead.low is None or lead.high is None:
        return False
    return lead.low > 0 or lead.high < 0


def _caption(rows: Sequence[PairedRow], with_paper: bool, note: str) -> str:
    leads = [row.difference for row in rows if row.difference]
    parts = [f"{note}." if note else ""]
    parts.append("Percent, mean ± standard error over seeds.")
    parts.append("Paper: over its three runs." if with_paper else "")
    if any(lead.low is not None for lead in leads):
        parts.append("Differences on the same seeds, with 95 % intervals (Student's t).")
    elif leads:
        parts.append("Differences on the same seeds.")
    if any(lead.n >= ENOUGH_SEEDS for lead in leads):
        parts.append(
            "*: at least five seeds, and the interval excludes 0 (each row by itself, without a "
            "correction for the number of rows)."
        )
    return " ".join(part for part in parts if part)
