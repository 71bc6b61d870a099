"""The tables of the report and of the command line, each as a ``Table``."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from deepccg.records import (
    Estimate,
    Shift,
    ShiftScale,
    fit_line,
    shift_points,
)
from deepccg.report.comparisons import Comparison, Row
from deepccg.report.costs import (
    milliseconds_per_batch,
    network_passes,
    passes_per_query,
    processors,
    seconds_learning,
    stored_bytes,
    stored_examples,
)
from deepccg.report.formatting import (
    DASH,
    comparison_title,
    seeds_text,
    slope_text,
)
from deepccg.report.table import Cell, Column, Table, TableRow, best_of, percent_cell

# heading, metric, whether its best value is set in bold
_SUMMARY_COLUMNS = (
    ("Task-\nincremental\nacc.", "task_accuracy", True),
    ("forgetting", "task_forgetting", False),
    ("Class-\nincremental\nacc.", "class_accuracy", True),
    ("forgetting", "class_forgetting", False),
)

# heading, value of a row, format
_COST_COLUMNS: tuple[tuple[str, Callable[[Row], Estimate | None], str], ...] = (
    ("Seconds learning", seconds_learning, ",.1f"),
    ("Milliseconds per batch", milliseconds_per_batch, ",.1f"),
    ("Forward passes per example", lambda row: network_passes(row, 1, 0), ".1f"),
    ("Backward passes per example", lambda row: network_passes(row, 0, 1), ".1f"),
    ("Stored examples", stored_examples, ",.0f"),
    ("Stored bytes", stored_bytes, ",.0f"),
)


class StreamTask(NamedTuple):
    """One task of a stream: the names of its classes and how many examples it has."""

    classes: tuple[str, ...]
    examples: int
    appearance: str = ""  # of its examples, where tasks differ in that


def summary_table(rows: Sequence[Row], title: str) -> Table:
    """Return accuracy and forgetting of each row, in both scenarios."""
    cells = []
    for _, metric, marked in _SUMMARY_COLUMNS:
        values = [row.metric(metric) for row in rows]
        compared = _of_same_seeds(rows)
        best = best_of([v if marked and c else None for v, c in zip(values, compared, strict=True)])
        cells.append([percent_cell(v, best=b) for v, b in zip(values, best, strict=True)])
    columns = [Column(heading) for heading, _, _ in _SUMMARY_COLUMNS]
    if any(row.note for row in rows):
        columns.append(Column("Note", words=True))
        cells.append([Cell(row.note) for row in rows])
    lines = (TableRow(row.label, tuple(own)) for row, *own in zip(rows, *cells, strict=True))
    return Table(title, _caption(rows), tuple(columns), tuple(lines))


def results_table(comparison: Comparison) -> Table:
    """Return each method's accuracy, the paper's beside it, forgetting and anytime accuracy."""
    own, other, rows = comparison.scenario, comparison.other, comparison.rows
    columns = {
        f"{own.capitalize()}-incremental accuracy": _metric_cells(rows, f"{own}_accuracy"),
        "Paper": [percent_cell(comparison.paper(row)) for row in rows],
        "Forgetting": [percent_cell(row.metric(f"{own}_forgetting")) for row in rows],
        "Anytime accuracy": [percent_cell(row.metric(f"{own}_anytime_accuracy")) for row in rows],
        f"{other.capitalize()}-incremental accuracy": _metric_cells(rows, f"{other}_accuracy"),
        "Seeds": [Cell(f"{len(row.runs)}", len(row.runs)) for row in rows],
    }
    known = {key: own for key, own in columns.items() if any(c.value is not None for c in own)}
    caption = f"{_caption(rows)} {_bold_text(rows)}".strip()
    title = f"{comparison_title(comparison.dataset, comparison.stream, own)}, {comparison.subtitle}"
    return _table(title, caption, rows, known)


def overview_table(comparisons: Sequence[Comparison]) -> Table:
    """Return all comparisons side by side: each method's accuracy in the own scenario of each."""
    first: dict[str, Row] = {}  # by label
    cells: list[dict[str, Cell]] = []
    for comparison in comparisons:
        rows, metric = comparison.rows, f"{comparison.scenario}_accuracy"
        column = _metric_cells(rows, metric, comparison.paper)
        cells.append({row.label: cell for row, cell in zip(rows, column, strict=True)})
        for row in rows:
            first.setdefault(row.label, row)
    lines = tuple(
        row_line(row, [column.get(label, Cell(DASH)) for column in cells])
        for label, row in first.items()
    )
    text = (
        "Final accuracy in percent, mean ± standard error over seeds, each column in its own "
        "scenario. In bold the best of the rows of each column that have the same seeds; offline "
        "rows are no competitors."
    )
    if any(cell.paper for line in lines for cell in line.cells):
        text += " The second number is the paper's."
    columns = [
        Column(
            each.title,
            detail="" if each.distinction else each.subtitle,
            link=each.key,
            setting=each.key,
        )
        for each in comparisons
    ]
    return Table("All settings", text, tuple(columns), lines)


def cost_table(comparison: Comparison) -> Table | None:
    """Return what each method spent; ``None`` if no run has a record of it."""
    rows = comparison.rows
    columns = {
        heading: [_number_cell(of(row), form) for row in rows]
        for heading, of, form in _COST_COLUMNS
    }
    known = {key: own for key, own in columns.items() if any(c.value is not None for c in own)}
    if not known:
        return None
    text = (
        "Means over seeds, of learning alone, without scoring. A pass is one image through the "
        "network. Stored: what the saved state holds in addition to the network in use."
    )
    machines = processors(rows)
    if machines:
        text += " Seconds are wall time on the machine that did the run."
    if len(machines) > 1:
        text += f" They were taken on {len(machines)} kinds of machine and do not compare."
    return _table("Cost", text, rows, known)


def frontier_table(title: str, rows: Sequence[Row], metric: str, note: str = "") -> Table:
    """Return accuracy beside what it cost; ``note`` is a first sentence of the caption."""
    columns = {
        "Accuracy": _metric_cells(rows, metric),
        "Anytime\naccuracy": _metric_cells(rows, metric.replace("_", "_anytime_")),
        "Passes per\nexample": [_number_cell(network_passes(row), ",.1f") for row in rows],
        "Passes per\nquery": [Cell(f"{n}", n) for n in map(passes_per_query, rows)],
        "Seconds": [_number_cell(seconds_learning(row), ",.0f") for row in rows],
        "Stored\nbytes": [_number_cell(stored_bytes(row), ",.0f") for row in rows],
        "Seeds": [Cell(f"{len(row.runs)}", len(row.runs)) for row in rows],
    }
    text = (
        "Percent, mean ± standard error over seeds; anytime: mean over the ends of all tasks. "
        "Passes are of one image through the network: in training per example, where one backward "
        "counts as two forward, and in prediction per query. Seconds are wall time without "
        "scoring; stored is what the saved state holds in addition to the network."
    )
    caption = " ".join(filter(None, (f"{note}." if note else "", text, _bold_text(rows))))
    return _table(title, caption, rows, columns)


def shift_table(rows: Sequence[Row]) -> Table | None:
    """Return fitted slopes with their 95 % intervals; ``None`` where no run recorded shifts."""
    lines = []
    for row in rows:
        if shifts := row.shifts:
            slopes = (_slope_cell(shifts, "relative"), _slope_cell(shifts, "distance"))
            cells = (*slopes, Cell(f"{len(shifts):,}"))
            lines.append(TableRow(row.label, cells, method=row.method))
    if not lines:
        return None
    text = (
        "Points of accuracy on the first task's test images per unit of shift in one batch, with "
        "95 % intervals that take batches as independent."
    )
    columns = tuple(map(Column, ("Slope, scaled shift", "Slope, shift", "Batches")))
    return Table("Representation shift", text, columns, tuple(lines))


def stream_table(
    tasks: Sequence[StreamTask], *, title: str = "", note: str = "", max_tasks: int = 16
) -> Table:
    """Return tasks in order of arrival; of a long stream only ``max_tasks``, from both ends."""
    total = sum(task.examples for task in tasks)
    distinct = len({name for task in tasks for name in task.classes})
    shown = any(task.appearance for task in tasks)
    rows = []
    for place, task in enumerate(tasks):
        appearance = (Cell(task.appearance),) if shown else ()
        cells = (*appearance, Cell(", ".join(task.classes)), Cell(f"{task.examples:,}"))
        rows.append(TableRow(str(place), cells))
    if (hidden := len(tasks) - max_tasks) > 0:
        head = max_tasks - max_tasks // 2
        more = (*((Cell("..."),) if shown else ()), Cell(f"{hidden:,} more tasks"), Cell("..."))
        rows[head : head + hidden] = [TableRow("...", more)]
    text = f"{len(tasks):,} tasks, {distinct:,} classes, {total:,} examples, each seen once{note}"
    first = (Column("Appearance", words=True),) if shown else ()
    columns = (*first, Column("Classes", words=True), Column("Examples"))
    return Table(title, text, columns, tuple(rows), label=Column("Task"))


def _caption(rows: Sequence[Row]) -> str:
    """Return what a reader must know to read the numbers."""
    counts = sorted({value.n for row in rows for value in row.aggregates.values() if value})
    seeds = " to ".join(str(n) for n in dict.fromkeys((*counts[:1], *counts[-1:])))
    what = f"mean ± standard error over {seeds} seeds" if counts[-1:] > [1] else "one seed"
    images, of_images, source = scored_on(rows[0])
    which = f"all {images:,}" if images == of_images else f"{images:,} of {of_images:,}"
    return (
        f"Percent, {what}; scored on {which} {source}. "
        "Accuracy: higher is better; forgetting: lower is better."
    )


def scored_on(row: Row) -> tuple[int, int, str]:
    """Return how many images were scored at the end, of how many, and what they are."""
    final, held_out = row.first.evaluations[-1], row.config["evaluation"].get("validation")
    source = "test images" if held_out is None else "held-out training images"
    return final.images, final.of_images, source


def _table(
    title: str, caption: str, rows: Sequence[Row], columns: Mapping[str, Sequence[Cell]]
) -> Table:
    """Return a table from the cells below each heading, one for each row."""
    lines = (row_line(row, cells) for row, *cells in zip(rows, *columns.values(), strict=True))
    return Table(title, caption, tuple(map(Column, columns)), tuple(lines))


def _of_same_seeds(rows: Sequence[Row]) -> list[bool]:
    """Mark the rows among which a best is named: the most that have the same seeds.

    Of two such groups, the one with more seeds.
    """
    seeds = [tuple(row.runs) for row in rows]
    counts = Counter(own for own, row in zip(seeds, rows, strict=True) if not row.offline)
    most = max(counts, key=lambda own: (counts[own], len(own)), default=())
    return [own == most for own in seeds]


def _bold_text(rows: Sequence[Row]) -> str:
    """Say among which rows the best is bold, if not among all."""
    compared = _of_same_seeds(rows)
    if all(c or row.offline for row, c in zip(rows, compared, strict=True)):
        return ""
    first = next(row for row, c in zip(rows, compared, strict=True) if c)
    return f"Bold: the best of the {sum(compared)} rows with seeds {seeds_text(first.runs)}."


def _metric_cells(
    rows: Sequence[Row], metric: str, paper: Callable[[Row], Estimate | None] = lambda _: None
) -> list[Cell]:
    """Return a metric of each row, the best of those that learned online marked."""
    compared = [c and not row.offline for row, c in zip(rows, _of_same_seeds(rows), strict=True)]
    values = [row.metric(metric) for row in rows]
    best = best_of([v if c else None for v, c in zip(values, compared, strict=True)])
    return [
        percent_cell(value, best=is_best, paper=paper(row))
        for row, value, is_best in zip(rows, values, best, strict=True)
    ]


def row_line(row: Row, cells: Sequence[Cell]) -> TableRow:
    """Return a line of a table, with the row's name."""
    return TableRow(row.label, tuple(cells), row.note, row.method)


def _number_cell(value: Estimate | None, form: str) -> Cell:
    return Cell(DASH) if value is None else Cell(f"{value.mean:{form}}", value.mean)


def _slope_cell(shifts: Sequence[Shift], scale: ShiftScale) -> Cell:
    x, y = shift_points(shifts, scale, "accuracy_change")
    line = fit_line(x, 100 * y)
    return Cell(DASH) if line is None else Cell(slope_text(line.slope), line.slope.value)
