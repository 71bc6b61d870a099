"""All figures of a comparison, by the name that their files have."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from deepccg.records import Mode, accuracy_matrix
from deepccg.report.comparisons import Comparison, Row
from deepccg.report.costs import COSTS, accuracy_against, free_of
from deepccg.report.details import RowDetails, class_names
from deepccg.report.figures.accuracy_curves import accuracy_curves
from deepccg.report.figures.comparison_dots import comparison_dots
from deepccg.report.figures.cost_scatter import cost_scatter
from deepccg.report.figures.description import Figure
from deepccg.report.figures.heat_map import heat_maps
from deepccg.report.figures.memory_images import memory_images
from deepccg.report.figures.shift_scatter import shift_scatter
from deepccg.report.figures.stream_bars import stream_from_evaluations
from deepccg.report.figures.style import SeriesStyle
from deepccg.report.gallery import Stored

Styles = Mapping[str, SeriesStyle]


def comparison_figures(
    comparison: Comparison, details: Mapping[str, RowDetails], styles: Styles
) -> dict[str, Figure]:
    """Describe every figure that the comparison's runs have data for.

    Args:
        comparison: The runs.
        details: By the key of a row.
        styles: By the label of a row.
    """
    rows, run = comparison.rows, comparison.streamed.first
    online = [row for row in rows if not row.offline]
    curves = {row.label: row.evaluations for row in online}
    matrices = {row.label: mean_matrix(row, comparison.scenario) for row in online}
    maps = {label: matrix for label, matrix in matrices.items() if matrix is not None}
    told = f"Seed {run.seed}; other seeds bring the classes in another order."
    names = class_names(comparison, details)
    return {
        "accuracy": accuracy_curves(curves, styles, (comparison.scenario, comparison.other)),
        "stream": stream_from_evaluations(run.evaluations, names, told),
        **_final_figures(comparison, styles),
        **({"tasks": heat_maps(maps)} if maps else {}),
        **_shift_figures(comparison, styles),
        **_cost_figures(comparison, styles),
        **{
            f"memory-{row.key}": memory_images(stored, row.label)
            for row in rows
            if isinstance(stored := details[row.key].stored, Stored)
        },
    }


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
        told = "How far accuracy on earlier tasks fell from its best. Lower is better."
        figures["forgetting"] = comparison_dots(
            lost, styles, title="Forgetting", axis="points", caption=told
        )
    return figures


def _shift_figures(comparison: Comparison, styles: Styles) -> dict[str, Figure]:
    followed = {row.label: shifts for row in comparison.rows if (shifts := row.shifts)}
    if not followed:
        return {}
    figures = {"shift": shift_scatter(followed, styles)}
    means = {
        row.label: (value, None)
        for row in comparison.rows
        if row.label in followed and (value := row.mean_of(_misalignments(row)))
    }
    if means:
        told = (
            "Mean over batches of the accuracy on the new embeddings with the classifier from "
            "before the step minus that with the one from after it. Far below 0: the old "
            "classifier no longer fits, the new one does."
        )
        figures["misalignment"] = comparison_dots(
            means, styles, title="Mean misalignment", axis="points of accuracy", caption=told
        )
    return figures


def _misalignments(row: Row) -> list[float | None]:
    """The mean of each run; ``None`` for one that recorded no shifts."""
    return [
        float(np.mean([shift.misalignment for shift in run.shifts])) if run.shifts else None
        for run in row.runs.values()
    ]


def _cost_figures(comparison: Comparison, styles: Styles) -> dict[str, Figure]:
    figures = {}
    for kind in COSTS:
        points = accuracy_against(comparison.rows, kind, f"{comparison.scenario}_accuracy")
        if points:
            told = "To the left: cheaper. Up: more accurate."
            if free := free_of(comparison.rows, kind):
                told += f" Not shown, at no cost: {', '.join(row.label for row in free)}."
            figures[f"cost-{kind.name}"] = cost_scatter(
                {row.label: (spent, value) for row, spent, value in points},
                styles,
                title=f"Accuracy against {kind.title}",
                axis=kind.axis,
                caption=told,
            )
    return figures
