"""Accuracy on each task after each task."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from deepccg.report.figures import description as fig
from deepccg.report.figures.style import scale_colours

_SIDE, _LEFT = 200, 30  # pixels
_COLUMNS = 4
_NUMBERED = 10  # tasks up to which the cells have numbers
_DARK_BELOW = 0.6  # values on whose colour white text is read best


def heat_maps(matrices: Mapping[str, npt.NDArray[np.float64]]) -> fig.Figure:
    """Describe a map for each label: time to the right, tasks downwards.

    Args:
        matrices: For each label ``a[t, i]`` ``[T, T]``, the accuracy on task i after task t as a
            fraction, NaN where there is none.
    """
    panels = tuple(_panel(label, matrix) for label, matrix in matrices.items())
    columns = min(_COLUMNS, len(panels))
    return fig.Figure(panels, columns=columns, colour_label="accuracy, %")


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
    numbers = tuple(
        fig.Text(time, task, f"{100 * value:.0f}", bool(value < _DARK_BELOW))
        for (time, task), value in np.ndenumerate(matrix)
        if tasks <= _NUMBERED and not np.isnan(value)
    )
    return fig.Panel(
        label,
        fig.Axis("after task", -0.5, tasks - 0.5, ticks),
        fig.Axis("task", tasks - 0.5, -0.5, ticks),
        alt=f"After the last task the accuracy is {100 * np.nanmin(last):.0f} to "
        f"{100 * np.nanmax(last):.0f} percent over {tasks} tasks",
        image=scale_colours(matrix.T),
        texts=numbers,
        width=_LEFT + _SIDE + 4,
        height=_SIDE,
        left=_LEFT,
        right=4,
    )
