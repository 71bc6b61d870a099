"""A table once, written as HTML, Markdown, LaTeX or CSV."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepccg.records import Estimate
from deepccg.report.rounding import in_percent
from deepccg.report.tables import DASH, escape, percent


@dataclass(frozen=True)
class Cell:
    """One entry.

    Args:
        text: What is shown.
        value: The number itself, for a spreadsheet: in percent where ``text`` is.
        error: Its standard error.
        best: Whether it is the best of its column.
        beside: The paper's number, in percent, where it stands in the same cell.
    """

    text: str
    value: float | None = None
    error: float | None = None
    best: bool = False
    beside: str = ""


@dataclass(frozen=True)
class Line:
    """One line of a table: what it is about, and its entries.

    Args:
        label: What readers call it.
        method: The method's name on the command line, for filters.
        key: The row of the report that it belongs to.
        note: A remark beside the label.
        cells: One for each column.
    """

    label: str
    method: str
    key: str
    note: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Sheet:
    """A table.

    Args:
        title: Its heading.
        caption: What a reader must know to read the numbers.
        columns: Headings of the cells; the label's column has none.
        lines: The lines.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]

    def markdown(self) -> str:
        """A Markdown table with its caption below."""
        lines = [["Method", *self.columns], ["---", *["---:"] * len(self.columns)]]
        for line in self.lines:
            cells = [
                (f"**{cell.text}**" if cell.best else cell.text) + _beside(cell)
                for cell in line.cells
            ]
            lines.append([escape(_labelled(line)), *cells])
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"### {escape(self.title)}\n\n{table}\n\n{escape(self.caption)}\n"

    def latex(self) -> str:
        """A ``tabular`` in a ``table``; needs the package booktabs."""
        lines = [" & ".join(["Method", *map(_tex, self.columns)]) + r" \\", r"\midrule"]
        for line in self.lines:
            cells = [_tex_number(cell) for cell in line.cells]
            lines.append(" & ".join([_tex(_labelled(line)), *cells]) + r" \\")
        return "\n".join(
            (
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{_tex(self.title)}. {_tex(self.caption)}}}",
                rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}",
                r"\toprule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            )
        )

    def csv(self) -> str:
        """Numbers in full, each with its standard error in a column of its own."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        errors = [any(line.cells[i].error is not None for line in self.lines) for i in self._places]
        heads = [
            head
            for column, has in zip(self.columns, errors, strict=True)
            for head in (column, *[f"{column}, standard error"] * has)
        ]
        writer.writerow(["Method", *heads])
        for line in self.lines:
            numbers: list[float | str | None] = []
            for cell, has in zip(line.cells, errors, strict=True):
                shown = "" if cell.text == DASH else cell.text
                numbers += [shown if cell.value is None else cell.value, *[cell.error] * has]
            writer.writerow([_plain(_labelled(line)), *numbers])
        return file.getvalue()

    def without_empty_columns(self) -> "Sheet":
        """The same, without columns in which no line has a value."""
        kept = [
            i for i in self._places if any(line.cells[i].value is not None for line in self.lines)
        ]
        lines = (replace(line, cells=tuple(line.cells[i] for i in kept)) for line in self.lines)
        columns = tuple(self.columns[i] for i in kept)
        return replace(self, columns=columns, lines=tuple(lines))

    @property
    def _places(self) -> range:
        return range(len(self.columns))


def percent_cell(
    value: Estimate | None, *, best: bool = False, paper: Estimate | None = None
) -> Cell:
    """A fraction over seeds, shown in percent."""
    beside = percent(paper) if paper else ""
    if value is None:
        return Cell(DASH, beside=beside)
    error = None if value.standard_error is None else 100 * value.standard_error
    return Cell(percent(value), 100 * value.mean, error, best, beside)


def best_of(values: Sequence[Estimate | None]) -> list[bool]:
    """Which values are the highest, as far as they are shown; none if there is only one."""
    shown = [None if value is None else float(in_percent(value.mean)) for value in values]
    known = [value for value in shown if value is not None]
    return [len(known) > 1 and value is not None and value == max(known) for value in shown]


def _beside(cell: Cell) -> str:
    return f" ({cell.beside})" if cell.beside else ""


def _labelled(line: Line) -> str:
    return f"{line.label} ({line.note})" if line.note else line.label


def _tex_number(cell: Cell) -> str:
    number = _tex(cell.text)
    return (rf"\textbf{{{number}}}" if cell.best else number) + _tex(_beside(cell))


_TEX = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\n": " ",
    "±": r"$\pm$",
} | {c: f"\\{c}" for c in "&%$#_{}"}


def _tex(text: str) -> str:
    r"""Text that LaTeX prints as it is.

    >>> _tex("50% of_all")
    '50\\% of\\_all'
    """
    return "".join(_TEX.get(c, c) for c in text)


def _plain(text: str) -> str:
    """A label that no spreadsheet takes for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" else text
