"""The tables and figures of a reproduced experiment."""

from pathlib import Path
from typing import TYPE_CHECKING

from deepccg.report import (
    PairedRow,
    Row,
    dataset_name,
    looks,
    method_name,
    paired_sheet,
    plot_shift,
    read_run,
    shift_sheet,
    stream_name,
)
from deepccg.reproduce import QUICK_NOTE

if TYPE_CHECKING:
    from deepccg.report import Sheet
    from deepccg.reproduce import CellResult, Column, Plan, Runs, Variant


def sheets_of(asked: "Plan", found: "list[CellResult]", runs: "Runs") -> "list[Sheet]":
    """One for each column, and for shift one of the slopes."""
    sheets = []
    for column in asked.columns:
        rows = [_row(each) for each in found if each.column == column]
        title, note = _title(asked, column), QUICK_NOTE if asked.quick else ""
        sheets.append(paired_sheet(title, rows, _label(asked.reference), note))
        slopes = shift_sheet(_followed(asked, column, runs)) if asked.name == "shift" else None
        sheets += [] if slopes is None else [slopes]
    return sheets


def figures(asked: "Plan", runs: "Runs", stem: Path) -> list[Path]:
    """Draw what there is to draw, as PNG and PDF; returns the files."""
    written: list[Path] = []
    for column in asked.columns if asked.name == "shift" else ():
        rows = _followed(asked, column, runs)
        look_of = looks((row.label, row.method) for row in rows)
        drawn = {
            row.label: ([shift for run in row.runs.values() for shift in run.shifts], look)
            for row in rows
            if (look := look_of[row.label])
        }
        title = _title(asked, column) + (f" ({QUICK_NOTE})" if asked.quick else "")
        own = f"-{column.dataset}" if len(asked.columns) > 1 else ""
        for suffix in (".png", ".pdf") if drawn else ():
            path = stem.with_name(stem.name + own + suffix)
            plot_shift(drawn, path, title=title)
            written.append(path)
    return written


def _row(each: "CellResult") -> PairedRow:
    return PairedRow(
        label=_label(each.variant),
        method=each.variant.method,
        accuracy=each.accuracy,
        paper=each.paper,
        difference=each.difference,
        offline=each.variant.method == "multi-task",
    )


def _followed(asked: "Plan", column: "Column", runs: "Runs") -> list[Row]:
    """The rows whose runs recorded shifts."""
    rows = []
    for variant in asked.rows(column):
        there = {
            seed: run
            for seed in asked.seeds
            if (directory := runs.get((variant, column, seed)))
            and (run := read_run(directory)) is not None
        }
        if there:
            rows.append(Row(str(variant), variant.method, _label(variant), there))
    return rows


def _label(variant: "Variant") -> str:
    preset = "" if variant.preset == "default" else f", preset {variant.preset}"
    return method_name(variant.method) + preset


def _title(asked: "Plan", column: "Column") -> str:
    parts = [
        dataset_name(column.dataset),
        stream_name(column.stream),
        f"{column.scenario}-incremental",
    ]
    parts += [] if column.memory is None else [f"memory {column.memory}"]
    parts += [f"at most {asked.shift_images} images"] if asked.name == "shift" else []
    return f"{asked.name}: {', '.join(parts)}"
