"""Accuracy on each task after each task, and which classes are taken for which."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from deepccg.report.figures import description as fig
from deepccg.report.figures.style import scale_colours

_SIDE, _LEFT = 200, 30  # pixels
_COLUMNS = 4
_NUMBERED = 10  # tasks up to which the cells have numbers
_DARK_BELOW = 0.6  # values on whose colour white text is read best
_Named: TypeAlias = tuple[str, tuple[tuple[float, str], ...]]  # an axis: its label and its ticks


def heat_maps(matrices: Mapping[str, npt.NDArray[np.float64]]) -> fig.Figure:
    """Describe a map for each label: time to the right, tasks downwards.

    Args:
        matrices: For each label ``a[t, i]`` ``[T, T]``, the accuracy on task i after task t as a
            fraction, NaN where there is none.
    """
    panels = tuple(_panel(label, matrix) for label, matrix in matrices.items())
    columns = min(_COLUMNS, len(panels))
    return fig.Figure(panels, columns=columns, colour_label="accuracy, %")


def confusion_maps(
    matrices: Mapping[str, npt.NDArray[np.float64]], classes: Sequence[int]
) -> fig.Figure:
    """Describe a map for each label: of a class's images (a line), which share got each answer.

    Args:
        matrices: For each label ``[C, C]`` fractions, lines and columns as ``classes``.
        classes: Labels of the classes.
    """
    every = -(-len(classes) // _NUMBERED)
    ticks = tuple((float(k), str(classes[k])) for k in range(0, len(classes), every))
    panels = tuple(
        _map(
            label,
            matrix,
            (("answer", ticks), ("class", ticks)),
            f"Of the images of a class {100 * np.diag(matrix).min():.0f} to "
            f"{100 * np.diag(matrix).max():.0f} percent get their own label",
        )
        for label, matrix in matrices.items()
    )
    columns = min(_COLUMNS, len(panels))
    return fig.Figure(panels, columns=columns, colour_label="images of the class, %")


def colour_scale() -> fig.Panel:
    """Describe the colours of 0 to 100 percent."""
    return fig.Panel(
        "Colours",
        fig.Axis("", 0, 100, ((0, "0 %"), (50, "50 %"), (100, "100 %"))),
        fig.Axis("", 0, 1),
        alt="from dark for 0 to light for 100 percent accuracy",
        image=scale_colours(np.linspace(0, 1, 120)[None]),
        width=240,
        height=10,
        left=14,
        right=18,
    )


def _panel(label: str, matrix: npt.NDArray[np.float64]) -> fig.Panel:
    tasks = len(matrix)
    last = matrix[~np.isnan(matrix).all(axis=1)][-1]
    ticks = tuple(tick for tick in fig.axis_between("", 0, tasks - 1).ticks if tick[0] % 1 == 0)
    alt = (
        f"After the last task the accuracy is {100 * np.nanmin(last):.0f} to "
        f"{100 * np.nanmax(last):.0f} percent over {tasks} tasks"
    )
    return _map(label, matrix.T, (("after task", ticks), ("task", ticks)), alt)


def _map(
    label: str, matrix: npt.NDArray[np.float64], axes: tuple[_Named, _Named], alt: str
) -> fig.Panel:
    """Describe a square of colours, lines downwards, with numbers if there is room."""
    size = len(matrix)
    numbers = tuple(
        fig.Text(column, line, f"{100 * value:.0f}", bool(value < _DARK_BELOW))
        for (line, column), value in np.ndenumerate(matrix)
        if size <= _NUMBERED and not np.isnan(value)
    )
    (x, x_ticks), (y, y_ticks) = axes
    return fig.Panel(
        label,
        fig.Axis(x, -0.5, size - 0.5, x_ticks),
        fig.Axis(y, size - 0.5, -0.5, y_ticks),
        alt=alt,
        image=scale_colours(matrix),
        texts=numbers,
        width=_LEFT + _SIDE + 4,
        height=_SIDE,
        left=_LEFT,
        right=4,
    )
