"""The tables of a report."""

from collections.abc import Sequence

from deepccg.records import Estimate
from deepccg.report.costs import (
    milliseconds_per_batch,
    network_passes,
    processors,
    seconds_learning,
    stored_bytes,
)
from deepccg.report.runs import cost
from deepccg.report.settings import Row, Setting
from deepccg.report.sheet import Cell, Line, Sheet, best_of, percent_cell
from deepccg.report.tables import DASH, caption

_SCENARIOS = {"task": "Task-incremental", "class": "Class-incremental"}


def results_sheet(setting: Setting) -> Sheet:
    """One setting: each method's accuracy, the paper's beside it, forgetting, anytime accuracy."""
    own, other, rows = setting.scenario, setting.other, setting.rows
    papers = [setting.paper(row) for row in rows]
    with_paper = any(papers)
    best = _best(rows, f"{own}_accuracy")
    best_other = _best(rows, f"{other}_accuracy")
    lines = []
    for row, paper, is_best, is_best_other in zip(rows, papers, best, best_other, strict=True):
        cells = [
            percent_cell(row.metric(f"{own}_accuracy"), best=is_best),
            *[percent_cell(paper)] * with_paper,
            percent_cell(row.metric(f"{own}_forgetting")),
            percent_cell(row.metric(f"{own}_anytime_accuracy")),
            percent_cell(row.metric(f"{other}_accuracy"), best=is_best_other),
            Cell(f"{len(row.runs)}", len(row.runs)),
        ]
        lines.append(_line(row, cells))
    columns = (
        f"{_SCENARIOS[own]} accuracy",
        *["Paper"] * with_paper,
        "Forgetting",
        "Anytime accuracy",
        f"{_SCENARIOS[other]} accuracy",
        "Seeds",
    )
    final = rows[0].first.evaluations[-1]
    source = "held-out training images" if setting.validation else "test images"
    told = caption([row.result for row in rows], final.images, final.of_images, source)
    title = f"{setting.title}, {setting.subtitle}"
    return Sheet(title, told, columns, tuple(lines))


def overview_sheet(settings: Sequence[Setting]) -> Sheet:
    """All settings side by side: each method's accuracy in the setting's own scenario."""
    labels = dict.fromkeys(row.label for setting in settings for row in setting.rows)
    columns: list[dict[str, Cell]] = []
    methods: dict[str, Row] = {}
    for setting in settings:
        metric = f"{setting.scenario}_accuracy"
        best = _best(setting.rows, metric)
        columns.append(
            {
                row.label: percent_cell(row.metric(metric), best=is_best, paper=setting.paper(row))
                for row, is_best in zip(setting.rows, best, strict=True)
            }
        )
        for row in setting.rows:
            methods.setdefault(row.label, row)
    lines = tuple(
        _line(methods[label], [column.get(label, Cell(DASH)) for column in columns])
        for label in labels
    )
    told = (
        "Final accuracy in percent, mean ± standard error over seeds, each column in its own "
        "scenario. Best of each column in bold; offline rows are no competitors."
    )
    if any(cell.beside for line in lines for cell in line.cells):
        told += " The second number is the paper's."
    columns_of = tuple(f"{setting.title}, {setting.subtitle}" for setting in settings)
    return Sheet("All settings", told, columns_of, lines)


def cost_sheet(setting: Setting) -> Sheet | None:
    """What each method spent; ``None`` if no run tells of anything."""
    lines = []
    for row in setting.rows:
        stored = row.mean_of(cost(run, "memory", "examples") for run in row.runs.values())
        cells = [
            _number_cell(seconds_learning(row), ",.1f"),
            _number_cell(milliseconds_per_batch(row), ",.1f"),
            _number_cell(network_passes(row, "forward"), ".1f"),
            _number_cell(network_passes(row, "backward"), ".1f"),
            _number_cell(stored, ",.0f"),
            _number_cell(stored_bytes(row), ",.0f"),
        ]
        lines.append(_line(row, cells))
    if all(cell.value is None for line in lines for cell in line.cells):
        return None
    columns = (
        "Seconds learning",
        "Milliseconds per batch",
        "Forward passes per example",
        "Backward passes per example",
        "Stored examples",
        "Stored bytes",
    )
    told = (
        "Means over seeds, of learning alone, without scoring. A pass is one image through the "
        "network. Stored: what the saved state holds besides the network in use."
    )
    machines = processors(setting.rows)
    if machines:
        told += " Seconds are wall time on the machine that did the run."
    if len(machines) > 1:
        told += f" They were taken on {len(machines)} kinds of machine and do not compare."
    return Sheet("Cost", told, columns, tuple(lines)).without_empty_columns()


def _best(rows: Sequence[Row], metric: str) -> list[bool]:
    """Which rows are the best of those that learned online."""
    return best_of([None if row.offline else row.metric(metric) for row in rows])


def _line(row: Row, cells: Sequence[Cell]) -> Line:
    return Line(row.label, row.method, row.key, row.result.note, tuple(cells))


def _number_cell(value: Estimate | None, form: str) -> Cell:
    return Cell(DASH) if value is None else Cell(f"{value.mean:{form}}", value.mean)
