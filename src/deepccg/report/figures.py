"""The figures of a setting, each with its heading and caption."""

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup

from deepccg.report.charts import Entry, Looks, accuracy_chart, dot_chart, scatter_chart
from deepccg.report.comparisons import Comparison
from deepccg.report.costs import COSTS, accuracy_against, free_of
from deepccg.report.details import RowDetails, class_names
from deepccg.report.stream_chart import stream_chart

_NO_TIME = "Scored at the end only: no line over time. Use --eval-every task to see one."


@dataclass(frozen=True)
class Figure:
    """A drawing with its heading and what a reader must know to read it."""

    title: str
    drawing: Markup | None
    caption: str


def time_figures(setting: Comparison, looks: Looks) -> list[Figure]:
    """Accuracy along the stream, in the setting's own scenario and in the other."""
    own, other = setting.scenario, setting.other
    bands = "Lines: mean over seeds, on what was met so far. Bands: one standard error."
    figures = []
    for mode, title in (
        (own, "Accuracy over time"),
        (other, "The same runs, scored the other way"),
    ):
        drawn = accuracy_chart(setting.rows, mode, looks)
        told = f"{mode.capitalize()}-incremental. {bands}" if drawn else _NO_TIME
        if drawn or mode == own:
            figures.append(Figure(title, drawn, told))
    return figures


def final_figures(setting: Comparison, looks: Looks) -> list[Figure]:
    """Accuracy at the end beside the paper's, and forgetting."""
    own, rows = setting.scenario, setting.rows
    accuracy = [
        Entry(row, ours, setting.paper(row))
        for row in rows
        if (ours := row.metric(f"{own}_accuracy"))
    ]
    lost = [Entry(row, value) for row in rows if (value := row.metric(f"{own}_forgetting"))]
    figures = []
    if accuracy:
        hollow = " Hollow: the paper." if any(entry.paper for entry in accuracy) else ""
        drawing = dot_chart(accuracy, f"Final {own}-incremental accuracy", "accuracy, %", looks)
        told = f"Bars: one standard error to each side.{hollow}"
        figures.append(Figure("Final accuracy", drawing, told))
    if lost:
        drawing = dot_chart(lost, f"{own.capitalize()}-incremental forgetting", "points", looks)
        told = "How far accuracy on earlier tasks fell from its best. Lower is better."
        figures.append(Figure("Forgetting", drawing, told))
    return figures


def stream_figure(setting: Comparison, about: Mapping[str, RowDetails]) -> Figure:
    """The classes over time."""
    run = setting.streamed.first
    drawing = stream_chart(run.evaluations, class_names(setting, about))
    told = f"Seed {run.seed}; other seeds bring the classes in another order."
    return Figure("The stream", drawing, f"Which classes arrive when. {told}")


def cost_figures(setting: Comparison, looks: Looks) -> list[Figure]:
    """Accuracy against each kind of cost in which methods differ."""
    figures = []
    for kind in COSTS:
        points = accuracy_against(setting.rows, kind, f"{setting.scenario}_accuracy")
        if points:
            told = "To the left: cheaper. Up: more accurate."
            if free := free_of(setting.rows, kind):
                told += f" Not shown, at no cost: {', '.join(row.label for row in free)}."
            drawing = scatter_chart(points, kind.axis, looks)
            figures.append(Figure(f"Accuracy against {kind.title}", drawing, told))
    return figures
