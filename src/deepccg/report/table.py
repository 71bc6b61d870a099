"""A table once, written for the terminal and as HTML, Markdown, LaTeX and CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup
from rich import box
from rich.table import Table as RichTable
from rich.text import Text

from deepccg.records import Estimate
from deepccg.report.figures.svg import element
from deepccg.report.formatting import DASH, in_percent, percent

_LABEL_WIDTH = 24  # characters of a label that the terminal shows before it folds


@dataclass(frozen=True)
class Cell:
    """One entry."""

    text: str
    value: float | None = None  # for a spreadsheet: the number in full, in percent where text is
    error: float | None = None  # the standard error of the value
    best: bool = False  # of its column
    paper: str = ""  # the paper's number, where it stands in the same cell


@dataclass(frozen=True)
class Column:
    """A heading and how the cells below it are set."""

    heading: str  # line breaks are for the terminal
    words: bool = False  # set to the left; numbers are set to the right
    detail: str = ""  # a second, smaller heading
    link: str = ""  # the id of what the heading links to on the page
    setting: str = ""  # the id of the setting that hides the column on the page with itself

    @property
    def text(self) -> str:
        """The whole heading on one line."""
        heading = self.heading.replace("-\n", "-").replace("\n", " ")
        return f"{heading}, {self.detail}" if self.detail else heading


@dataclass(frozen=True)
class TableRow:
    """A label and one cell for each column."""

    label: str
    cells: tuple[Cell, ...]
    note: str = ""  # beside the label
    method: str = ""  # its name on the command line, for the page's filters

    @property
    def text(self) -> str:
        """The label with its note."""
        return f"{self.label} ({self.note})" if self.note else self.label


@dataclass(frozen=True)
class Table:
    """A table, and its writers."""

    title: str  # empty for none
    caption: str  # what a reader must know to read the numbers
    columns: tuple[Column, ...]  # of the cells
    rows: tuple[TableRow, ...]
    label: Column = field(default=Column("Method", words=True))  # the column of the labels

    def terminal(self) -> RichTable:
        """Return the table for a rich ``Console``."""
        table = RichTable(
            title=self.title or None,
            box=box.SIMPLE_HEAD,
            caption=self.caption,
            caption_justify="left",
        )
        # Beside other words a label keeps its width: they wrap first.
        wide = any(column.words for column in self.columns)
        longest = max((len(row.text) for row in self.rows), default=0) if wide else 0
        for column in (self.label, *self.columns):
            if column.words:
                least = min(longest, _LABEL_WIDTH) if column is self.label else None
                table.add_column(column.heading, overflow="fold", min_width=least)
            else:
                table.add_column(column.heading, justify="right", no_wrap=True)
        for row in self.rows:
            cells = [Text(cell.text, "bold" if cell.best else "") for cell in row.cells]
            table.add_row(Text(row.text), *cells)
        return table

    def html(self, name: str, slots: Mapping[str, int], kind: str = "") -> Markup:
        """Return the table with its caption, everything escaped.

        Args:
            name: What screen readers call it, and a file with its content.
            slots: The colour of each label; others have none.
            kind: A class for the style sheet and the script, such as ``lead``.
        """
        rows = [
            element(
                "tr",
                element(
                    "th",
                    *_key(slots.get(row.label)),
                    row.label,
                    *([" ", element("small", row.note, class_="note")] if row.note else []),
                    scope="row",
                ),
                *map(_html_cell, self.columns, row.cells),
                data_method=row.method or None,
                data_label=row.label,
            )
            for row in self.rows
        ]
        label = element("th", self.label.text, scope="col")
        head = element("thead", element("tr", label, *map(_html_heading, self.columns)))
        body = element("tbody", "\n", Markup("\n").join(rows), "\n")
        table = element("table", "\n", head, "\n", body, "\n", class_=kind or None)
        region = {"role": "region", "tabindex": "0", "aria_label": name}
        scroll = element("div", "\n", table, "\n", class_="scroll", **region)
        return scroll + "\n" + element("p", self.caption, class_="caption")

    def markdown(self) -> str:
        """Return a Markdown table with its caption below."""
        columns = (self.label, *self.columns)
        rules = ["---" if column.words else "---:" for column in columns]
        lines = [[escape_markdown(c.text) for c in columns], rules]
        for row in self.rows:
            cells = [
                (f"**{cell.text}**" if cell.best else escape_markdown(cell.text)) + _paper(cell)
                for cell in row.cells
            ]
            lines.append([escape_markdown(row.text), *cells])
        table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        title = f"### {escape_markdown(self.title)}\n\n" if self.title else ""
        return f"{title}{table}\n\n{escape_markdown(self.caption)}\n"

    def latex(self) -> str:
        """Return a ``tabular`` in a ``table``; needs the package booktabs."""
        columns = (self.label, *self.columns)
        title = f"{_tex(self.title)}. " if self.title else ""
        lines = [
            " & ".join([_tex(row.text), *map(_tex_cell, row.cells)]) + r" \\" for row in self.rows
        ]
        return "\n".join(
            (
                r"\begin{table}",
                r"\centering",
                rf"\caption{{{title}{_tex(self.caption)}}}",
                rf"\begin{{tabular}}{{{''.join('l' if c.words else 'r' for c in columns)}}}",
                r"\toprule",
                " & ".join(_tex(column.text) for column in columns) + r" \\",
                r"\midrule",
                *lines,
                r"\bottomrule",
                r"\end{tabular}",
                r"\end{table}",
                "",
            )
        )

    def csv(self) -> str:
        """Return numbers in full, each with its standard error in the next column."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        with_error = [
            any(row.cells[place].error is not None for row in self.rows)
            for place in range(len(self.columns))
        ]
        headings = [self.label.text]
        for column, has in zip(self.columns, with_error, strict=True):
            headings += [column.text, *[f"{column.text}, standard error"] * has]
        writer.writerow(headings)
        for row in self.rows:
            numbers: list[float | str | None] = []
            for cell, has in zip(row.cells, with_error, strict=True):
                shown = "" if cell.text == DASH else cell.text
                numbers += [shown if cell.value is None else cell.value, *[cell.error] * has]
            writer.writerow([_no_formula(row.text), *numbers])
        return file.getvalue()


def percent_cell(
    value: Estimate | None, *, best: bool = False, paper: Estimate | None = None
) -> Cell:
    """Return the cell of a fraction over seeds, shown in percent."""
    beside = percent(paper) if paper else ""
    if value is None:
        return Cell(DASH, paper=beside)
    error = None if value.standard_error is None else 100 * value.standard_error
    return Cell(percent(value), 100 * value.mean, error, best, beside)


def best_of(values: Sequence[Estimate | None]) -> list[bool]:
    """Mark the values that are shown as the highest; none if there is only one value."""
    shown = [None if value is None else float(in_percent(value.mean)) for value in values]
    known = [value for value in shown if value is not None]
    return [len(known) > 1 and value is not None and value == max(known) for value in shown]


def escape_markdown(text: str) -> str:
    """Escape text for a cell of a Markdown table."""
    plain = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return plain.replace("<", "&lt;")


def _paper(cell: Cell) -> str:
    return f" ({cell.paper})" if cell.paper else ""


def _key(slot: int | None) -> list[Markup]:
    return [] if slot is None else [element("span", "", class_=f"key s{slot}")]


def _html_heading(column: Column) -> Markup:
    text = column.heading
    linked = element("a", text, href=f"#{column.link}") if column.link else text
    detail = [" ", element("small", column.detail)] if column.detail else []
    which = {"scope": "col", "class_": None if column.words else "number"}
    return element("th", linked, *detail, **which, data_setting=column.setting or None)


def _html_cell(column: Column, cell: Cell) -> Markup:
    text = element("strong", cell.text) if cell.best else cell.text
    paper = [" ", element("small", f"paper {cell.paper}", class_="beside")] if cell.paper else []
    kinds = ["number"] * (not column.words) + ["best"] * cell.best
    kinds += ["paper"] * (column.heading == "Paper")
    return element("td", text, *paper, class_=" ".join(kinds) or None)


def _tex_cell(cell: Cell) -> str:
    number = _tex(cell.text)
    return (rf"\textbf{{{number}}}" if cell.best else number) + _tex(_paper(cell))


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
    r"""Escape text for LaTeX.

    >>> _tex("50% of_all")
    '50\\% of\\_all'
    """
    return "".join(_TEX.get(c, c) for c in text)


def _no_formula(text: str) -> str:
    """Quote a label that a spreadsheet would take for a formula."""
    return f"'{text}" if text[:1] in "=+-@\t\r" else text
