"""A picture of a stream: which classes arrive when."""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from deepccg.records import RecordError
from deepccg.report.style import LINE, QUIET, heading, new_figure, plain_axes, save, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_Counts: TypeAlias = npt.NDArray[np.int64]

_BINS = 60  # for a stream without known tasks
_LABELS = 20  # more names or numbers than this do not fit beside each other
_THICKEST = 0.86  # of a row


def plot_stream(
    presence: npt.NDArray[np.integer],
    class_names: Sequence[str],
    path: str | os.PathLike[str],
    *,
    boundaries: Sequence[int] = (),
    title: str = "Which classes arrive when",
) -> "Figure":
    """Draw each class as a band along the stream, as thick as its share of what arrives.

    Args:
        presence: ``[K, T]``: examples of each class in each batch, classes in order of arrival.
        class_names: ``[K]``.
        path: Where the PNG goes.
        boundaries: Examples seen whenever a new task begins, in increasing order.
        title: The heading.
    """
    if presence.ndim != 2 or len(presence) != len(class_names) or presence.sum() == 0:
        raise RecordError(f"cannot draw {presence.shape} counts of {len(class_names)} classes")
    counts, edges = _bins(np.asarray(presence, dtype=np.int64), boundaries)
    share = counts / np.maximum(counts.sum(axis=0), 1)
    classes = len(class_names)
    figure = new_figure(8, float(np.clip(1.4 + 0.26 * classes, 2.5, 6.5)))
    axes = figure.add_subplot()
    plain_axes(axes)
    for row, colour in enumerate(_colours(classes)):
        half = np.repeat(share[row] / share.max() * _THICKEST / 2, 2)
        axes.fill_between(
            np.repeat(edges, 2)[1:-1], row - half, row + half, color=colour, linewidth=0
        )
    axes.set_xlim(0, edges[-1])
    axes.set_ylim(classes - 0.4, -0.6)  # the first class on top
    every = -(-classes // _LABELS)
    axes.set_yticks(range(0, classes, every), class_names[::every])
    axes.set_xlabel("examples seen")
    axes.xaxis.set_major_formatter(thousands)
    if boundaries:
        _mark_tasks(axes, [0, *boundaries], int(edges[-1]))
    heading(axes, title)
    save(figure, path)
    return figure


def _bins(presence: _Counts, boundaries: Sequence[int]) -> tuple[_Counts, _Counts]:
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


def _colours(classes: int) -> npt.NDArray[np.float64]:
    """From first to last along a scale that colour-blind readers see as an order."""
    from matplotlib import colormaps

    return colormaps["viridis"](np.linspace(0.15, 0.8, classes))


def _mark_tasks(axes: "Axes", starts: Sequence[int], end: int) -> None:
    """Lines between the tasks, and their numbers on top."""
    few = len(starts) <= _LABELS
    for start in starts[1:]:
        axes.axvline(start, color=LINE, linewidth=0.8 if few else 0.3, zorder=0)
    centres = [(a + b) / 2 for a, b in zip(starts, [*starts[1:], end], strict=True)]
    every = 1 if few else 10
    top = axes.secondary_xaxis("top")
    top.set_xticks(centres[::every], [f"{i}" for i in range(0, len(starts), every)])
    top.tick_params(length=0, labelsize=9, labelcolor=QUIET)
    top.spines["top"].set_visible(False)
    top.set_xlabel("task", color=QUIET, size=9)
