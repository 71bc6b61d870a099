"""Which classes arrive when."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from deepccg.records import Evaluation, RecordError
from deepccg.report.figures import description as fig
from deepccg.report.figures.style import scale_colour

_BINS = 60  # for a stream without known tasks
_MOST_NAMES = 20  # below each other
_MOST_NUMBERS = 12  # of tasks, beside each other
_TALLEST, _ROW = 380, 18  # pixels
_THICKNESS = 0.84  # of a bar, relative to its row

Span: TypeAlias = tuple[float, float, float]  # begin, end, thickness


def stream_from_counts(
    presence: npt.NDArray[np.integer], class_names: Sequence[str], boundaries: Sequence[int] = ()
) -> fig.Figure:
    """Describe each class as bars along the stream, as thick as its share of what arrives.

    Args:
        presence: ``[K, T]``: examples of each class in each batch, classes in order of arrival.
        class_names: ``[K]``.
        boundaries: Examples seen whenever a new task begins, in increasing order.
    """
    if presence.ndim != 2 or len(presence) != len(class_names) or presence.sum() == 0:
        raise RecordError(f"cannot draw {presence.shape} counts of {len(class_names)} classes")
    counts, edges = _binned(np.asarray(presence, dtype=np.int64), boundaries)
    share = counts / np.maximum(counts.sum(axis=0), 1)
    spans = []
    for row in share / share.max():
        bins = zip(edges[:-1].tolist(), edges[1:].tolist(), row.tolist(), strict=True)
        spans.append(_joined([(begin, end, size) for begin, end, size in bins if size]))
    starts = [0, *boundaries] if boundaries else []
    return fig.Figure((_panel(class_names, spans, starts, float(edges[-1])),))


def stream_from_evaluations(
    evaluations: Sequence[Evaluation], names: Mapping[int, str], caption: str = ""
) -> fig.Figure:
    """Describe the stream of one run: within a task its classes are taken to come evenly.

    A class without a name is called by its label.
    """
    tasks = task_spans(evaluations)
    classes = list(dict.fromkeys(label for _, _, labels in tasks for label in labels))
    spans = [_joined([(b, e, 1.0) for b, e, labels in tasks if c in labels]) for c in classes]
    starts = [begin for begin, _, _ in tasks]
    shown = [names.get(label, str(label)) for label in classes]
    return fig.Figure((_panel(shown, spans, starts, tasks[-1][1]),), caption)


def task_spans(evaluations: Sequence[Evaluation]) -> list[tuple[float, float, tuple[int, ...]]]:
    """Return each task's begin and end, in examples seen, and its classes.

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


def _panel(
    names: Sequence[str], spans: Sequence[Sequence[Span]], starts: Sequence[float], end: float
) -> fig.Panel:
    count, shades = len(names), np.linspace(0.15, 0.75, len(names))
    every = -(-len(starts) // _MOST_NUMBERS) or 1
    middles = [(a + b) / 2 for a, b in zip(starts, [*starts[1:], end], strict=False)]
    numbers = tuple((middles[k], str(k)) for k in range(0, len(starts), every))
    return fig.Panel(
        title="Which classes arrive when",
        x=fig.axis_between("examples seen", 0, end),
        y=fig.category_axis(names, _MOST_NAMES),
        series=tuple(
            fig.Series(name, colour=scale_colour(shade), bars=tuple(_bar(k, name, *s) for s in own))
            for k, (name, own, shade) in enumerate(zip(names, spans, shades, strict=True))
        ),
        alt=f"{len(starts) or 1} tasks, {count} classes, {end:,.0f} examples",
        rules=tuple(fig.Rule(start) for start in starts[every::every]),
        top=fig.Axis("task", 0, end, numbers) if starts else None,
        height=min(_ROW, _TALLEST / count) * count,
        left=92,
    )


def _bar(row: int, name: str, begin: float, end: float, thickness: float) -> fig.Bar:
    half = thickness * _THICKNESS / 2
    tooltip = f"{name}: examples {begin:,.0f} to {end:,.0f}"
    return fig.Bar(begin, end, row + half, row - half, tooltip)


def _binned(
    presence: npt.NDArray[np.int64], boundaries: Sequence[int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Join batches: counts ``[K, bins]`` and the bins' edges ``[bins + 1]``, in examples seen.

    A bin is a task, where the boundaries are known: inside a task only the chance of single
    batches would show.
    """
    seen_before = np.cumsum(presence.sum(axis=0)) - presence.sum(axis=0)
    total = int(presence.sum())
    wanted = boundaries or np.linspace(0, total, _BINS, endpoint=False)
    starts = np.unique(np.searchsorted(seen_before, [0, *wanted]))
    starts = starts[starts < presence.shape[1]]
    counts = np.add.reduceat(presence, starts, axis=1)
    return counts, np.append(seen_before[starts], total)


def _joined(spans: Sequence[Span]) -> list[Span]:
    """Make spans one that touch and are equally thick.

    >>> _joined([(0, 1, 1.0), (1, 2, 1.0), (2, 3, 0.5), (5, 6, 0.5)])
    [(0, 2, 1.0), (2, 3, 0.5), (5, 6, 0.5)]
    """
    joined: list[Span] = []
    for begin, end, thickness in spans:
        if joined and joined[-1][1:] == (begin, thickness):
            joined[-1] = (joined[-1][0], end, thickness)
        else:
            joined.append((begin, end, thickness))
    return joined
