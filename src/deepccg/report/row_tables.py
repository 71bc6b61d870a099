"""Tables of what rows are: their configurations, their classes, and how far unfinished runs are."""

from collections.abc import Mapping

import numpy as np

from deepccg.records import Mode, average_accuracy
from deepccg.report.comparisons import Comparison, Row, result_fields
from deepccg.report.formatting import DASH, in_percent
from deepccg.report.runs import Run
from deepccg.report.table import Cell, Column, Table, TableRow
from deepccg.report.tables import row_line

_MOST_CLASSES = 20  # that have a column each
_QUANTILES = {"Lowest": 0, "Lower quarter": 25, "Median": 50, "Upper quarter": 75, "Highest": 100}


def differences_table(comparison: Comparison) -> Table | None:
    """Return the fields in which rows differ; ``None`` if there are none.

    A field that a row's method does not have is a dash there, and no difference.
    """
    rows = comparison.rows
    fields = [result_fields(row.first) for row in rows]
    names = dict.fromkeys(name for own in fields for name in own if name != "method.name")
    differing = [
        name for name in names if len({repr(own[name]) for own in fields if name in own}) > 1
    ]
    if not differing:
        return None
    lines = (
        row_line(row, [Cell(_field_text(own[n])) if n in own else Cell(DASH) for n in differing])
        for row, own in zip(rows, fields, strict=True)
    )
    columns = (Column(name.removeprefix("method."), words=True) for name in differing)
    text = "Fields of the configuration in which rows differ. A dash: the method has no such field."
    return Table("Configuration differences", text, tuple(columns), tuple(lines))


def class_table(comparison: Comparison, names: Mapping[int, str]) -> Table | None:
    """Return the final accuracy on each class; of many classes, how it is spread over them."""
    found = {row.key: class_accuracies(row, comparison.scenario) for row in comparison.rows}
    rows = [row for row in comparison.rows if found[row.key]]
    if not rows:
        return None
    labels = sorted({label for own in found.values() for label in own})
    text = f"Final {comparison.scenario}-incremental accuracy in percent, mean over seeds"
    if len(labels) <= _MOST_CLASSES:
        headings = [names.get(label, f"Class {label}") for label in labels]
        values = [[found[row.key].get(label) for label in labels] for row in rows]
        text += ", on the images of each class."
    else:
        headings = list(_QUANTILES)
        values = [
            list(np.percentile(list(found[row.key].values()), list(_QUANTILES.values())))
            for row in rows
        ]
        text += f": how it is spread over the {len(labels)} classes."
    lines = (row_line(row, list(map(_cell, own))) for row, own in zip(rows, values, strict=True))
    return Table("Accuracy by class", text, tuple(map(Column, headings)), tuple(lines))


def class_accuracies(row: Row, mode: Mode) -> dict[int, float]:
    """Return the final accuracy on each class as a fraction, mean over the seeds that met it."""
    found: dict[int, list[float]] = {}
    for evaluations in row.evaluations:
        for score in evaluations[-1].classes:
            correct = score.task_correct if mode == "task" else score.class_correct
            if correct is not None:
                found.setdefault(score.label, []).append(correct / score.images)
    return {label: float(np.mean(own)) for label, own in found.items()}


def unfinished_table(runs: Mapping[str, Run]) -> Table:
    """Return how far runs are that have not reached their end, by label."""
    lines = []
    for label, run in runs.items():
        last = run.evaluations[-1:]
        done = f"{run.step:,} of {run.steps:,}" if run.steps else f"{run.step:,}"
        cells = [Cell("running" if run.running else f"stopped: {run.resume}"), Cell(done, run.step)]
        cells += [_cell(average_accuracy(last, "task")), _cell(average_accuracy(last, "class"))]
        loss = run.training[-1].loss if run.training else None
        cells.append(Cell(DASH) if loss is None else Cell(f"{loss:.3f}", loss))
        method = str(run.config["method"].get("name"))
        lines.append(TableRow(label, tuple(cells), method=method))
    headings = ("Batches", "Task-incremental so far", "Class-incremental so far", "Loss")
    text = (
        "As far as the runs have recorded. Accuracy in percent, on the tasks met by the last time "
        "the run was scored. A run that was stopped goes on with the command that stands beside it."
    )
    columns = Column("State", words=True), *map(Column, headings)
    return Table("Unfinished runs", text, columns, tuple(lines))


def _cell(value: float | None) -> Cell:
    return Cell(DASH) if value is None else Cell(in_percent(value), 100 * value)


def _field_text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
