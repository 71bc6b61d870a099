"""The tables and figures of a reproduced experiment."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from deepccg.report.catalogue import cost_figures
from deepccg.report.comparisons import Row
from deepccg.report.figures import Figure, save, series_styles, shift_scatter
from deepccg.report.formatting import (
    DASH,
    ENOUGH_SEEDS,
    comparison_title,
    difference_text,
    method_name,
)
from deepccg.report.runs import read_run
from deepccg.report.table import Cell, Column, Table, TableRow, best_of, percent_cell
from deepccg.report.tables import frontier_table, shift_table
from deepccg.reproduce import QUICK_NOTE, CellResult, Plan, Runs, Variant
from deepccg.reproduce import Column as PlanColumn


def reproduction_tables(plan: Plan, results: list[CellResult], runs: Runs) -> list[Table]:
    """Return a table for each column, and for shift one of the slopes."""
    tables = []
    for column in plan.columns:
        rows = [each for each in results if each.column == column]
        title, note = _title(plan, column), QUICK_NOTE if plan.quick else ""
        if plan.name == "frontier":
            tables.append(frontier_table(title, _rows(plan, column, runs), column.metric, note))
            continue
        tables.append(comparison_table(title, rows, _label(plan.reference), note))
        slopes = shift_table(_rows(plan, column, runs)) if plan.name == "shift" else None
        tables += [] if slopes is None else [slopes]
    return tables


def comparison_table(
    title: str, results: Sequence[CellResult], reference: str, note: str = ""
) -> Table:
    """Return methods beside the paper's numbers, with their differences on paired seeds.

    Missing numbers are dashes; ``reference`` is the label of what the others are compared with,
    ``note`` a first sentence of the caption.
    """
    with_paper = any(each.paper for each in results)
    offline = [each.variant.method == "multi-task" for each in results]  # an upper bound
    online = [None if off else each.accuracy for each, off in zip(results, offline, strict=True)]
    rows = []
    for each, is_best, off in zip(results, best_of(online), offline, strict=True):
        lead = each.difference
        cells = (
            percent_cell(each.accuracy, best=is_best),
            *[percent_cell(each.paper)] * with_paper,
            Cell(difference_text(lead), 100 * lead.value) if lead else Cell(DASH),
            Cell(f"{len(each.values)}", len(each.values)),
        )
        rows.append(TableRow(_label(each.variant), cells, "offline" if off else ""))
    headings = ("Accuracy", *["Paper"] * with_paper, f"Minus {reference} [95 %]", "Seeds")
    caption = _caption(results, with_paper, note)
    return Table(title, caption, tuple(map(Column, headings)), tuple(rows))


def reproduction_figures(plan: Plan, runs: Runs, stem: Path) -> list[Path]:
    """Draw the figures of an experiment as PNG and PDF, if it has any; returns the files."""
    written: list[Path] = []
    for column in plan.columns:
        rows = _rows(plan, column, runs)
        note = f"{QUICK_NOTE}. " if plan.quick else ""
        own = f"-{column.dataset}" if len(plan.columns) > 1 else ""
        for name, figure in _figures(plan.name, column, rows).items():
            paths = [stem.with_name(stem.name + own + name + end) for end in (".png", ".pdf")]
            noted = replace(figure, caption=note + figure.caption)
            written += save(noted, *paths, title=_title(plan, column))
    return written


def _figures(experiment: str, column: PlanColumn, rows: Sequence[Row]) -> dict[str, Figure]:
    """Describe the figures of an experiment's column, by what their files' names end with."""
    if experiment == "shift" and rows:
        styles = series_styles((row.label, row.method) for row in rows)
        return {"": shift_scatter({row.label: row.shifts for row in rows}, styles)}
    if experiment == "frontier":
        methods = {row.method: method_name(row.method) for row in rows}
        styles = series_styles((label, method) for method, label in methods.items())
        lines = {
            label: [row for row in rows if row.method == method]
            for method, label in methods.items()
        }
        found = cost_figures(lines, column.metric, styles)
        return {f"-{name}": figure for name, figure in found.items()}
    return {}


def _caption(results: Sequence[CellResult], with_paper: bool, note: str) -> str:
    differences = [each.difference for each in results if each.difference]
    parts = [f"{note}."] if note else []
    parts.append("Percent, mean ± standard error over seeds.")
    parts += ["Paper: over its three runs."] * with_paper
    if any(difference.low is not None for difference in differences):
        parts.append("Differences on the same seeds, with 95 % intervals (Student's t).")
    elif differences:
        parts.append("Differences on the same seeds.")
    if any(difference.n >= ENOUGH_SEEDS for difference in differences):
        parts.append(
            "*: at least five seeds, and the interval excludes 0 (each row by itself, without a "
            "correction for the number of rows)."
        )
    return " ".join(parts)


def _rows(plan: Plan, column: PlanColumn, runs: Runs) -> list[Row]:
    """Return the rows that have runs."""
    rows = []
    for variant in plan.rows(column):
        there = {
            seed: run
            for seed in plan.seeds
            if (directory := runs.get((variant, column, seed)))
            and (run := read_run(directory)) is not None
        }
        if there:
            rows.append(Row(str(variant), variant.method, _label(variant), there))
    return rows


def _label(variant: Variant) -> str:
    preset = "" if variant.preset == "default" else f", preset {variant.preset}"
    return method_name(variant.method) + preset


def _title(plan: Plan, column: PlanColumn) -> str:
    parts = [comparison_title(column.dataset, column.stream, column.scenario)]
    parts += [] if column.memory is None else [f"memory {column.memory}"]
    parts += [f"at most {plan.shift_images} images"] if plan.name == "shift" else []
    return f"{plan.name}: {', '.join(parts)}"
