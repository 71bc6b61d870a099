"""The figures and tables of a comparison, by the name that their files have, and those files."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from deepccg.records import Estimate, Mode, accuracy_matrix, write_atomically
from deepccg.report.comparisons import Comparison, Row
from deepccg.report.costs import network_passes, seconds_learning, stored_bytes
from deepccg.report.figures import (
    Figure,
    SeriesStyle,
    Stored,
    accuracy_curves,
    comparison_dots,
    confusion_maps,
    cost_scatter,
    heat_maps,
    loss_curves,
    memory_images,
    save,
    series_styles,
    shift_scatter,
    stream_from_evaluations,
)
from deepccg.report.row_tables import class_table, differences_table
from deepccg.report.table import Table
from deepccg.report.tables import cost_table, overview_table, results_table, shift_table

Styles = Mapping[str, SeriesStyle]
_MIXED = {  # streams that bring other classes than those of the tasks that are scored
    kind: f" Bars are the tasks that are scored: in a {kind} stream {what}."
    for kind, what in {
        "blurry": "a share of each class comes in the other tasks",
        "gaussian": "classes come before and after their task, too",
    }.items()
}
_COSTS = (  # name of the file, what accuracy is drawn against, the same with its unit, its value
    ("passes", "network passes", "network passes per example, backward ones twice", network_passes),
    ("bytes", "memory", "stored bytes", stored_bytes),
    ("seconds", "time", "seconds learning", seconds_learning),
)


@dataclass(frozen=True)
class RowDetails:
    """Information about a row that its records do not hold."""

    command: str  # makes the row again
    protocols: Mapping[int, str]  # the audit of each run in one line, by seed
    stored: Stored | str  # the memory of the first seed, or why it is not known


def export_report(
    comparisons: Sequence[Comparison],
    details: Mapping[str, RowDetails],
    directory: str | os.PathLike[str],
) -> list[Path]:
    """Write tables as Markdown, LaTeX and CSV, figures as PNG and PDF; returns the files.

    Each file is whole or not there.
    """
    target = Path(directory)
    styles = series_styles((row.label, row.method) for each in comparisons for row in each.rows)
    tables = {"overview": overview_table(comparisons)} if len(comparisons) > 1 else {}
    for comparison in comparisons:
        own = comparison_tables(comparison, details)
        tables |= {f"{comparison.key}-{name}": table for name, table in own.items()}
    written: list[Path] = []
    for name, table in tables.items():
        texts = {".md": table.markdown(), ".tex": table.latex(), ".csv": table.csv()}
        written += write_texts(texts, target / name)
    for comparison in comparisons:
        for name, figure in comparison_figures(comparison, details, styles).items():
            if not figure.panels[0].empty:
                paths = [target / f"{comparison.key}-{name}{suffix}" for suffix in (".png", ".pdf")]
                written += save(figure, *paths, title=comparison.title)
    return written


def comparison_tables(
    comparison: Comparison, details: Mapping[str, RowDetails]
) -> dict[str, Table]:
    """Return every table that the comparison's runs have data for; details are by key."""
    names = _class_names(comparison, details)
    tables = {
        "results": results_table(comparison),
        "cost": cost_table(comparison),
        "shift": shift_table(comparison.rows),
        "classes": class_table(comparison, names),
        "differences": differences_table(comparison),
    }
    return {name: table for name, table in tables.items() if table is not None}


def comparison_figures(
    comparison: Comparison, details: Mapping[str, RowDetails], styles: Styles
) -> dict[str, Figure]:
    """Describe every figure that the runs have data for; details are by key, styles by label."""
    rows, run = comparison.rows, comparison.streamed.first
    online = [row for row in rows if not row.offline]
    curves = {row.label: row.evaluations for row in online}
    memories = [(row, own) for row in rows if isinstance(own := details[row.key].stored, Stored)]
    names = _class_names(comparison, details)
    losses = {row.label: [own.training for own in row.runs.values()] for row in online}
    loss = loss_curves(losses, styles)
    text = f"Seed {run.seed}; other seeds bring the classes in another order."
    text += _MIXED.get(comparison.stream, "")
    return {
        "accuracy": accuracy_curves(curves, styles, (comparison.scenario, comparison.other)),
        "stream": stream_from_evaluations(run.evaluations, names, text),
        **_final_figures(comparison, styles),
        **({"loss": loss} if loss else {}),
        **_map_figures(comparison),
        **_shift_figures(comparison, styles),
        **cost_figures(
            {row.label: [row] for row in rows}, f"{comparison.scenario}_accuracy", styles
        ),
        **{f"memory-{row.key}": memory_images(own, row.label) for row, own in memories},
    }


def _class_names(comparison: Comparison, details: Mapping[str, RowDetails]) -> dict[int, str]:
    """Return the names of classes by label, as far as a memory came with them."""
    for row in comparison.rows:
        if isinstance(stored := details[row.key].stored, Stored):
            return dict(enumerate(stored.names))
    return {}


def _map_figures(comparison: Comparison) -> dict[str, Figure]:
    """Describe accuracy by task and time, the other scenario after its own, and confusions."""
    online = [row for row in comparison.rows if not row.offline]
    figures = {}
    for name, mode in (("tasks", comparison.scenario), ("tasks-other", comparison.other)):
        found = {row.label: mean_matrix(row, mode) for row in online}
        maps = {label: matrix for label, matrix in found.items() if matrix is not None}
        if maps:
            figures[name] = heat_maps(maps)
    confusions = {row.label: own for row in comparison.rows if (own := mean_confusion(row))}
    classes = next((own[0] for own in confusions.values()), [])
    shown = {label: matrix for label, (own, matrix) in confusions.items() if own == classes}
    return {**figures, **({"confusion": confusion_maps(shown, classes)} if shown else {})}


def mean_confusion(row: Row) -> tuple[list[int], npt.NDArray[np.float64]] | None:
    """Return labels and ``[C, C]``, which share of a class's images got each answer at the end.

    The mean over seeds; ``None`` unless every run recorded it for the same classes.
    """
    found = []
    for evaluations in row.evaluations:
        scores = {score.label: score for score in evaluations[-1].classes}
        labels = sorted(scores)
        matrix = np.zeros((len(labels), len(labels)))
        for line, label in enumerate(labels):
            score = scores[label]
            if score.mistaken is None or score.class_correct is None:
                return None
            for answer, images in ((label, score.class_correct), *score.mistaken):
                if answer not in scores:
                    return None
                matrix[line, labels.index(answer)] = images / score.images
        found.append((labels, matrix))
    labels = found[0][0]
    if any(own != labels for own, _ in found):
        return None
    mean: npt.NDArray[np.float64] = np.mean([matrix for _, matrix in found], axis=0)
    return labels, mean


def mean_matrix(row: Row, mode: Mode) -> npt.NDArray[np.float64] | None:
    """Return ``a[t, i]`` over the seeds; ``None`` unless all runs have the same two or more t."""
    found = [accuracy_matrix(run.evaluations, mode) for run in row.runs.values()]
    if len({matrix.shape for matrix in found}) != 1:
        return None
    mean: npt.NDArray[np.float64] = np.mean(found, axis=0)
    moments = ~np.isnan(mean).all(axis=1)
    return mean if moments.sum() >= 2 else None


def _final_figures(comparison: Comparison, styles: Styles) -> dict[str, Figure]:
    own, rows = comparison.scenario, comparison.rows
    accuracy = {
        row.label: (ours, comparison.paper(row))
        for row in rows
        if (ours := row.metric(f"{own}_accuracy"))
    }
    lost = {row.label: (value, None) for row in rows if (value := row.metric(f"{own}_forgetting"))}
    figures = {"final": comparison_dots(accuracy, styles)} if accuracy else {}
    if lost:
        text = "How far accuracy on earlier tasks fell from its best. Lower is better."
        figures["forgetting"] = comparison_dots(
            lost, styles, title="Forgetting", axis="points", caption=text
        )
    return figures


def _shift_figures(comparison: Comparison, styles: Styles) -> dict[str, Figure]:
    followed = [row for row in comparison.rows if row.shifts]
    if not followed:
        return {}
    figures = {"shift": shift_scatter({row.label: row.shifts for row in followed}, styles)}
    means = {}
    for row in followed:
        each = [[shift.misalignment for shift in run.shifts] for run in row.runs.values()]
        if value := row.mean_of(float(np.mean(own)) if own else None for own in each):
            means[row.label] = (value, None)
    if means:
        text = (
            "Mean over batches of the accuracy on the new embeddings with the classifier from "
            "before the step minus that with the one from after it. Far below 0: the old "
            "classifier no longer fits, the new one does."
        )
        figures["misalignment"] = comparison_dots(
            means, styles, title="Mean misalignment", axis="points of accuracy", caption=text
        )
    return figures


def cost_figures(
    rows: Mapping[str, Sequence[Row]], metric: str, styles: Styles
) -> dict[str, Figure]:
    """Describe a metric against each cost in which rows differ.

    Rows are by label; several of one label are joined by a line, in their order.
    """
    figures = {}
    for name, title, axis, cost_of in _COSTS:
        points: dict[str, list[tuple[Estimate, Estimate]]] = {}
        free = []  # what costs nothing has no place on a logarithmic axis
        for label, own in rows.items():
            for row in own:
                cost, accuracy = cost_of(row), row.metric(metric)
                if cost and cost.mean > 0 and accuracy:
                    points.setdefault(label, []).append((cost, accuracy))
                elif cost and cost.mean == 0:
                    free.append(row.label)
        if len({cost.mean for own in points.values() for cost, _ in own}) > 1:
            text = "To the left: cheaper. Up: more accurate."
            text += f" Not shown, at no cost: {', '.join(free)}." if free else ""
            figures[f"cost-{name}"] = cost_scatter(
                points, styles, title=f"Accuracy against {title}", axis=axis, caption=text
            )
    return figures


def write_texts(texts: Mapping[str, str], stem: Path) -> list[Path]:
    """Write a file for each suffix; returns the files."""
    paths = {stem.with_name(stem.name + suffix): text for suffix, text in texts.items()}
    for path, text in paths.items():
        write_atomically(path, text.encode())
    return list(paths)
