"""Each method's metrics over its seeds: as a table and as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from deepccg.records import Estimate, Evaluation, aggregate, summary
from deepccg.report.table import Cell, Column, Table, TableRow, best_of, percent_cell

# heading, metric, whether its best value is set in bold
_COLUMNS = (
    ("Task-\nincremental\nacc.", "task_accuracy", True),
    ("forgetting", "task_forgetting", False),
    ("Class-\nincremental\nacc.", "class_accuracy", True),
    ("forgetting", "class_forgetting", False),
)


@dataclass(frozen=True)
class ResultRow:
    """The metrics of one method.

    Args:
        label: What is compared, usually a method.
        aggregates: Each metric over the seeds; ``None`` where it is not defined.
        note: A remark on this row.
        seeds: Each seed's metrics, for the JSON.
    """

    label: str
    aggregates: Mapping[str, Estimate | None]
    note: str = ""
    seeds: Mapping[int, Mapping[str, float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Scored:
    """What accuracies were measured on.

    Args:
        images: How many images were scored.
        of_images: How many there are.
        source: What they are.
    """

    images: int
    of_images: int
    source: str = "test images"

    @classmethod
    def at(cls, final: Evaluation, *, held_out: bool) -> "Scored":
        """Return what an evaluation scored; ``held_out``: of the training data."""
        source = "held-out training images" if held_out else "test images"
        return cls(final.images, final.of_images, source)


def result_row(label: str, runs: Mapping[int, Sequence[Evaluation]], note: str = "") -> ResultRow:
    """Return the metrics of one method from the evaluations of its runs, by seed."""
    seeds = {seed: summary(evaluations) for seed, evaluations in runs.items()}
    return ResultRow(label, aggregate(list(seeds.values())), note, seeds)


def result_table(rows: Sequence[ResultRow], scored: Scored, title: str = "") -> Table:
    """Return accuracy and forgetting of each row, in both scenarios."""
    cells = []
    for _, metric, marked in _COLUMNS:
        values = [row.aggregates.get(metric) for row in rows]
        best = [marked and is_best for is_best in best_of(values)]
        cells.append([percent_cell(v, best=b) for v, b in zip(values, best, strict=True)])
    columns = [Column(heading) for heading, _, _ in _COLUMNS]
    if any(row.note for row in rows):
        columns.append(Column("Note", words=True))
        cells.append([Cell(row.note) for row in rows])
    by_row = zip(*cells, strict=True)
    lines = (TableRow(row.label, own) for row, own in zip(rows, by_row, strict=True))
    return Table(title, caption(rows, scored), tuple(columns), tuple(lines))


def summary_json(rows: Sequence[ResultRow], scored: Scored) -> dict[str, Any]:
    """Return every number as plain JSON values: fractions, ``None`` where not defined."""
    return asdict(scored) | {
        "results": [
            {
                "label": row.label,
                "note": row.note,
                "metrics": {
                    name: None if value is None else asdict(value)
                    for name, value in row.aggregates.items()
                },
                "seeds": {str(seed): dict(values) for seed, values in row.seeds.items()},
            }
            for row in rows
        ],
    }


def caption(rows: Sequence[ResultRow], scored: Scored) -> str:
    """Return what a reader must know to read the numbers."""
    counts = sorted({value.n for row in rows for value in row.aggregates.values() if value})
    seeds = " to ".join(str(n) for n in dict.fromkeys((*counts[:1], *counts[-1:])))
    many = counts[-1:] > [1]
    what = f"mean ± standard error over {seeds} seeds" if many else "one seed"
    images, of_images = scored.images, scored.of_images
    which = f"all {images:,}" if images == of_images else f"{images:,} of {of_images:,}"
    return (
        f"Percent, {what}; scored on {which} {scored.source}. "
        "Accuracy: higher is better; forgetting: lower is better."
    )
