"""The report's tables and figures as files."""

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from deepccg.records import write_atomically
from deepccg.report.about import About, class_names
from deepccg.report.accuracy_plot import plot_accuracy_over_time
from deepccg.report.comparison_plot import plot_comparison
from deepccg.report.cost_plot import plot_cost
from deepccg.report.costs import COSTS, accuracy_against
from deepccg.report.gallery import Stored
from deepccg.report.heat_map import mean_matrix
from deepccg.report.heat_plot import plot_heat_maps
from deepccg.report.memory_plot import plot_memory
from deepccg.report.palette import Look, looks
from deepccg.report.settings import Row, Setting
from deepccg.report.sheet import Sheet
from deepccg.report.sheets import cost_sheet, overview_sheet, results_sheet
from deepccg.report.shift_chart import shift_sheet, shifts_of
from deepccg.report.shift_plot import plot_shift
from deepccg.report.stream_chart import task_spans
from deepccg.report.stream_plot import plot_stream
from deepccg.report.style import save

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def export_report(
    settings: Sequence[Setting], about: Mapping[str, About], directory: str | os.PathLike[str]
) -> list[Path]:
    """Write tables as Markdown, LaTeX and CSV, figures as PNG and PDF; returns the files.

    Each file is whole or not there.
    """
    target = Path(directory)
    look_of = looks((row.label, row.method) for setting in settings for row in setting.rows)
    written: list[Path] = []
    if len(settings) > 1:
        written += _write_sheet(overview_sheet(settings), target / "overview")
    for setting in settings:
        sheets = {
            "results": results_sheet(setting),
            "cost": cost_sheet(setting),
            "shift": shift_sheet(setting.rows),
        }
        for name, sheet in sheets.items():
            if sheet is not None:
                written += _write_sheet(sheet, target / f"{setting.key}-{name}")
        for name, draw in _figures(setting, about, look_of).items():
            path = target / f"{setting.key}-{name}.png"
            save(draw(path), path.with_suffix(".pdf"))
            written += [path, path.with_suffix(".pdf")]
    return written


def _write_sheet(sheet: Sheet, path: Path) -> list[Path]:
    texts = {".md": sheet.markdown(), ".tex": sheet.latex(), ".csv": sheet.csv()}
    for suffix, text in texts.items():
        write_atomically(path.with_name(path.name + suffix), text.encode())
    return [path.with_name(path.name + suffix) for suffix in texts]


Draw = Callable[[Path], "Figure"]


def _figures(
    setting: Setting, about: Mapping[str, About], look_of: Mapping[str, Look]
) -> dict[str, Draw]:
    """By name, each as a function of where its PNG goes."""
    own, rows, title = setting.scenario, setting.rows, setting.title
    often = {
        row.label: row.evaluations
        for row in rows
        if not row.offline and all(len(run) > 1 for run in row.evaluations)
    }
    finals = {row.label: (row.metric(f"{own}_accuracy"), _paper(setting, row)) for row in rows}
    lost = {row.label: (value, None) for row in rows if (value := row.metric(f"{own}_forgetting"))}
    maps = {
        row.label: matrix
        for row in rows
        if not row.offline and (matrix := mean_matrix(row, own)) is not None
    }
    followed = {
        row.label: (shifts, look_of[row.label]) for row in rows if (shifts := shifts_of(row))
    }
    figures: dict[str, Draw] = {
        "final": lambda path: plot_comparison(finals, path, title=title),
        "stream": lambda path: _stream(setting, about, path),
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
    return figures | _cost_figures(setting, look_of) | _memory_figures(setting, about)


def _cost_figures(setting: Setting, look_of: Mapping[str, Look]) -> dict[str, Draw]:
    figures: dict[str, Draw] = {}
    for kind in COSTS:
        points = accuracy_against(setting.rows, kind, f"{setting.scenario}_accuracy")
        drawn = {row.label: (spent, value, look_of[row.label]) for row, spent, value in points}
        if drawn:
            figures[f"cost-{kind.name}"] = partial(
                plot_cost, drawn, title=setting.title, xlabel=kind.axis
            )
    return figures


def _memory_figures(setting: Setting, about: Mapping[str, About]) -> dict[str, Draw]:
    return {
        f"memory-{row.key}": partial(plot_memory, stored, title=f"{row.label}\n{setting.title}")
        for row in setting.rows
        if isinstance(stored := about[row.key].stored, Stored)
    }


def _paper(setting: Setting, row: Row) -> tuple[float, float | None] | None:
    paper = setting.paper(row)
    return None if paper is None else (paper.mean, paper.standard_error)


def _stream(setting: Setting, about: Mapping[str, About], path: Path) -> "Figure":
    """From the records: within a task its classes are taken to come evenly."""
    row = setting.streamed
    spans = task_spans(row.first.evaluations)
    classes = list(dict.fromkeys(label for _, _, labels in spans for label in labels))
    presence = np.zeros((len(classes), len(spans)), dtype=np.int64)
    for place, (begin, end, labels) in enumerate(spans):
        for label in labels:
            presence[classes.index(label), place] = max(round((end - begin) / len(labels)), 1)
    names = class_names(setting, about)
    starts = np.cumsum(presence.sum(axis=0))[:-1].tolist()
    title = f"{setting.title}, seed {row.first.seed}"
    return plot_stream(
        presence, [names.get(c, str(c)) for c in classes], path, boundaries=starts, title=title
    )
