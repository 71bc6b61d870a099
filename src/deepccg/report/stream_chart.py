"""The stream drawn as classes over time."""

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from deepccg.records import Evaluation
from deepccg.report.charts import WIDTH
from deepccg.report.palette import heat, hexadecimal
from deepccg.report.svg import Drawing, Scale, tick

_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 12, 22, 40
_TALLEST, _ROW = 380, 18
_LABELS = 20  # names that fit below each other
_TASKS = 20  # that are separated by lines
_LONGEST_NAME = 13


def task_spans(evaluations: Sequence[Evaluation]) -> list[tuple[float, float, tuple[int, ...]]]:
    """Each task's begin and end, in examples seen, and its classes.

    Where a task was not scored while it was the current one, the time between its neighbours is
    divided evenly.
    """
    final = evaluations[-1]
    ends = {evaluation.task: evaluation.examples for evaluation in evaluations}
    ends[len(final.tasks) - 1] = final.examples
    known = sorted(ends)
    edges = np.interp(range(-1, len(final.tasks)), [-1, *known], [0, *(ends[k] for k in known)])
    return [
        (float(edges[place]), float(edges[place + 1]), score.classes)
        for place, score in enumerate(final.tasks)
    ]


def stream_chart(evaluations: Sequence[Evaluation], names: Mapping[int, str]) -> Markup:
    """Each class a bar while it arrives, classes in order of arrival.

    Args:
        evaluations: Of one run.
        names: Of the classes; a label that has none is itself.
    """
    spans = task_spans(evaluations)
    classes = list(dict.fromkeys(label for _, _, labels in spans for label in labels))
    row = min(_ROW, _TALLEST / len(classes))
    bottom = _TOP + row * len(classes)
    told = f"{len(spans)} tasks, {len(classes)} classes, {spans[-1][1]:,.0f} examples"
    drawing = Drawing(WIDTH, bottom + _BOTTOM, "Which classes arrive when", told)
    x = Scale(0, spans[-1][1], _LEFT, WIDTH - _RIGHT)
    if len(spans) <= _TASKS:
        for place, (begin, end, _) in enumerate(spans):
            drawing.text(x((begin + end) / 2), _TOP - 8, f"{place}", anchor="middle")
            if place:
                drawing.line(x(begin), _TOP - 4, x(begin), bottom, "grid")
    for place, label in enumerate(classes):
        name = names.get(label, str(label))
        top = _TOP + place * row
        if place % -(-len(classes) // _LABELS) == 0:
            short = name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"
            drawing.text(_LEFT - 8, top + row / 2 + 4, short, anchor="end", class_="label")
        colour = hexadecimal(heat(0.15 + 0.6 * place / max(len(classes) - 1, 1)))
        for begin, end in _joined([(b, e) for b, e, labels in spans if label in labels]):
            with drawing.group(f"{name}: examples {begin:,.0f} to {end:,.0f}"):
                drawing.add(
                    "rect", x=x(begin), y=top + 0.08 * row, width=max(x(end) - x(begin), 0.5),
                    height=0.84 * row, fill=colour, rx=min(2, row / 4),
                )  # fmt: skip
    for value in x.ticks(4):
        drawing.text(x(value), bottom + 16, tick(value), anchor="middle")
    drawing.text(WIDTH - _RIGHT, bottom + 33, "examples seen", anchor="end", class_="axis")
    if len(spans) <= _TASKS:
        drawing.text(_LEFT - 8, _TOP - 8, "task", anchor="end", class_="axis")
    return drawing.markup()


def _joined(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Spans that touch become one.

    >>> _joined([(0, 1), (1, 2), (5, 6)])
    [(0, 2), (5, 6)]
    """
    joined: list[tuple[float, float]] = []
    for begin, end in spans:
        if joined and joined[-1][1] == begin:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined
