"""The tables and figures of a reproduced experiment."""

from pathlib import Path

from deepccg.report.comparisons import Row
from deepccg.report.figures import save, series_styles, shift_scatter
from deepccg.report.names import dataset_name, method_name, stream_name
from deepccg.report.runs import read_run
from deepccg.report.table import Table
from deepccg.report.tables import PairedRow, comparison_table, shift_table
from deepccg.reproduce import QUICK_NOTE, Answer, Column, Plan, Runs, Variant


def reproduction_tables(plan: Plan, answers: list[Answer], runs: Runs) -> list[Table]:
    """Return a table for each column, and for shift one of the slopes."""
    tables = []
    for column in plan.columns:
        rows = [_row(each) for each in answers if each.column == column]
        title, note = _title(plan, column), QUICK_NOTE if plan.quick else ""
        tables.append(comparison_table(title, rows, _label(plan.reference), note))
        slopes = shift_table(_followed(plan, column, runs)) if plan.name == "shift" else None
        tables += [] if slopes is None else [slopes]
    return tables


def reproduction_figures(plan: Plan, runs: Runs, stem: Path) -> list[Path]:
    """Draw the figures of an experiment as PNG and PDF, if it has any; returns the files."""
    written: list[Path] = []
    for column in plan.columns if plan.name == "shift" else ():
        rows = _followed(plan, column, runs)
        styles = series_styles((row.label, row.method) for row in rows)
        shifts = {row.label: row.shifts for row in rows}
        title = _title(plan, column) + (f" ({QUICK_NOTE})" if plan.quick else "")
        own = f"-{column.dataset}" if len(plan.columns) > 1 else ""
        if shifts:
            paths = [stem.with_name(stem.name + own + suffix) for suffix in (".png", ".pdf")]
            written += save(shift_scatter(shifts, styles), *paths, title=title)
    return written


def _row(each: Answer) -> PairedRow:
    return PairedRow(
        label=_label(each.variant),
        method=each.variant.method,
        accuracy=each.accuracy,
        paper=each.paper,
        difference=each.difference,
        offline=each.variant.method == "multi-task",
    )


def _followed(plan: Plan, column: Column, runs: Runs) -> list[Row]:
    """Return the rows whose runs recorded shifts."""
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


def _title(plan: Plan, column: Column) -> str:
    parts = [
        dataset_name(column.dataset),
        stream_name(column.stream),
        f"{column.scenario}-incremental",
    ]
    parts += [] if column.memory is None else [f"memory {column.memory}"]
    parts += [f"at most {plan.shift_images} images"] if plan.name == "shift" else []
    return f"{plan.name}: {', '.join(parts)}"
