"""The report's tables and figures as files."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepccg.records import write_atomically
from deepccg.report.accuracy_plot import plot_accuracy_over_time
from deepccg.report.comparison_plot import plot_comparison
from deepccg.report.comparisons import Comparison, Row
from deepccg.report.cost_plot import plot_cost
from deepccg.report.costs import COSTS, accuracy_against
from deepccg.report.details import RowDetails, class_names
from deepccg.report.gallery import Stored
from deepccg.report.heat_map import mean_matrix
from deepccg.report.heat_plot import plot_heat_maps
from deepccg.report.memory_plot import plot_memory
from deepccg.report.palette import Look, looks
from deepccg.report.shift_plot import plot_shift
from deepccg.report.stream_chart import task_spans
from deepccg.report.stream_plot import plot_stream
from deepccg.report.style import save
from deepccg.report.table import Table
from deepccg.report.tables import cost_table, overview_table, results_table, shift_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def export_report(
    comparisons: Sequence[Comparison],
    details: Mapping[str, RowDetails],
    directory: str | os.PathLike[str],
) -> list[Path]:
    """Write tables as Markdown, LaTeX and CSV, figures as PNG and PDF; returns the files.

    Each file is whole or not there.
    """
    target = Path(directory)
    look_of = looks((row.label, row.method) for each in comparisons for row in each.rows)
    written: list[Path] = []
    if len(comparisons) > 1:
        written += _write_table(overview_table(comparisons), target / "overview")
    for comparison in comparisons:
        tables = {
            "results": results_table(comparison),
            "cost": cost_table(comparison),
            "shift": shift_table(comparison.rows),
        }
        for name, table in tables.items():
            if table is not None:
                written += _write_table(table, target / f"{comparison.key}-{name}")
        for name, draw in _figures(comparison, details, look_of).items():
            path = target / f"{comparison.key}-{name}.png"
            save(draw(path), path.with_suffix(".pdf"))
            written += [path, path.with_suffix(".pdf")]
    return written


def _write_table(table: Table, path: Path) -> list[Path]:
    texts = {".md": table.markdown(), ".tex": table.latex(), ".csv": table.csv()}
    for suffix, text in texts.items():
        write_atomically(path.with_name(path.name + suffix), text.encode())
    return [path.with_name(path.name + suffix) for suffix in texts]


Draw = Callable[[Path], "Figure"]


def _figures(
    comparison: Comparison, details: Mapping[str, RowDetails], look_of: Mapping[str, Look]
) -> dict[str, Draw]:
    """Return figures by name, each as a function of the path of its PNG."""
    own, rows, title = comparison.scenario, comparison.rows, comparison.title
    often = {
        row.label: row.evaluations
        for row in rows
        if not row.offline and all(len(run) > 1 for run in row.evaluations)
    }
    finals = {row.label: (row.metric(f"{own}_accuracy"), _paper(comparison, row)) for row in rows}
    lost = {row.label: (value, None) for row in rows if (value := row.metric(f"{own}_forgetting"))}
    maps = {
        row.label: matrix
        for row in rows
        if not row.offline and (matrix := mean_matrix(row, own)) is not None
    }
    followed = {row.label: (shifts, look_of[row.label]) for row in rows if (shifts := row.shifts)}
    figures: dict[str, Draw] = {
        "final": lambda path: plot_comparison(finals, path, title=title),
        "stream": lambda path: _stream(comparison, details, path),
    }
    if often:
        figures["accuracy"] = lambda path: plot_accuracy_over_time(
            often, path, title=title, looks=look_of
        )
    if lost:
        figures["forgetting"] = lambda path: plot_comparison(
            lost, path, title=title, xlabel="forgetting, points"
        )
    if maps:
        figures["tasks"] = lambda path: plot_heat_maps(maps, path, title=title)
    if followed:
        figures["shift"] = lambda path: plot_shift(followed, path, title=title)
    return figures | _cost_figures(comparison, look_of) | _memory_figures(comparison, details)


def _cost_figures(comparison: Comparison, look_of: Mapping[str, Look]) -> dict[str, Draw]:
    figures: dict[str, Draw] = {}
    for kind in COSTS:
        points = accuracy_against(comparison.rows, kind, f"{comparison.scenario}_accuracy")
        drawn = {row.label: (spent, value, look_of[row.label]) for row, spent, value in points}
        if drawn:
            figures[f"cost-{kind.name}"] = partial(
                plot_cost, drawn, title=comparison.title, xlabel=kind.axis
            )
    return figures


def _memory_figures(comparison: Comparison, details: Mapping[str, RowDetails]) -> dict[str, Draw]:
    return {
        f"memory-{row.key}": partial(plot_memory, stored, title=f"{row.label}\n{comparison.title}")
        for row in comparison.rows
        if isinstance(stored := details[row.key].stored, Stored)
    }


def _paper(comparison: Comparison, row: Row) -> tuple[float, float | None] | None:
    paper = comparison.paper(row)
    return None if paper is None else (paper.mean, paper.standard_error)


def _stream(comparison: Comparison, details: Mapping[str, RowDetails], path: Path) -> "Figure":
    """Draw the stream from the records, as if the classes of a task came evenly."""
    row = comparison.streamed
    spans = task_spans(row.first.evaluations)
    classes = list(dict.fromkeys(label for _, _, labels in spans for label in labels))
    presence = np.zeros((len(classes), len(spans)), dtype=np.int64)
    for place, (begin, end, labels) in enumerate(spans):
        for label in labels:
            presence[classes.index(label), place] = max(round((end - begin) / len(labels)), 1)
    names = class_names(comparison, details)
    starts = np.cumsum(presence.sum(axis=0))[:-1].tolist()
    title = f"{comparison.title}, seed {row.first.seed}"
    return plot_stream(
        presence, [names.get(c, str(c)) for c in classes], path, boundaries=starts, title=title
    )
