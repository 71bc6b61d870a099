"""Task-by-time heat maps: how the accuracy on each task changed while the others were learned."""

import base64
import io

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from deepccg.records import Mode, accuracy_matrix
from deepccg.report.comparisons import Row
from deepccg.report.palette import heat, hexadecimal
from deepccg.report.svg import Drawing, ticks

_SIDE, _LEFT, _TOP, _BOTTOM = 200, 30, 6, 36
_NUMBERED = 10  # tasks up to which the cells have numbers
_LEVELS = 254
_DARK_BELOW = 0.6  # values on whose colour white is read best


def mean_matrix(row: Row, mode: Mode) -> npt.NDArray[np.float64] | None:
    """``a[t, i]`` over the seeds; ``None`` unless it has two moments, the same for all runs."""
    found = [accuracy_matrix(run.evaluations, mode) for run in row.runs.values()]
    if len({matrix.shape for matrix in found}) != 1:
        return None
    mean: npt.NDArray[np.float64] = np.mean(found, axis=0)
    moments = ~np.isnan(mean).all(axis=1)
    return mean if moments.sum() >= 2 else None


def heat_map(matrix: npt.NDArray[np.float64], label: str) -> Markup:
    """A map of ``a[t, i]``: time to the right, tasks downwards in order of arrival."""
    tasks = len(matrix)
    last = matrix[~np.isnan(matrix).all(axis=1)][-1]
    told = (
        f"After the last task the accuracy is {100 * np.nanmin(last):.0f} to "
        f"{100 * np.nanmax(last):.0f} percent over {tasks} tasks"
    )
    drawing = Drawing(_LEFT + _SIDE + 4, _TOP + _SIDE + _BOTTOM, f"{label}: task by time", told)
    drawing.add(
        "image", href=_png(matrix.T), x=_LEFT, y=_TOP, width=_SIDE, height=_SIDE,
        preserveAspectRatio="none", class_="pixels",
    )  # fmt: skip
    size = _SIDE / tasks
    if tasks <= _NUMBERED:
        for (time, task), value in np.ndenumerate(matrix):
            if not np.isnan(value):
                drawing.text(
                    _LEFT + (time + 0.5) * size,
                    _TOP + (task + 0.5) * size + 4,
                    f"{100 * value:.0f}",
                    anchor="middle",
                    class_="on-dark" if value < _DARK_BELOW else "on-light",
                )
    for at in sorted({int(tick) for tick in ticks(0, tasks - 1, min(5, tasks))}):
        if 0 <= at < tasks:
            place = (at + 0.5) * size
            drawing.text(_LEFT + place, _TOP + _SIDE + 15, f"{at}", anchor="middle")
            drawing.text(_LEFT - 5, _TOP + place + 4, f"{at}", anchor="end")
    drawing.text(_LEFT + _SIDE, _TOP + _SIDE + 31, "after task", anchor="end", class_="axis")
    return drawing.markup()


def heat_scale() -> Markup:
    """What the colours mean."""
    drawing = Drawing(240, 30, "Colours", "from dark for 0 to light for 100 percent accuracy")
    for place in range(60):
        drawing.add("rect", x=4 * place, y=0, width=4.2, height=10, fill=_colour(place / 59))
    for share, anchor in ((0, "start"), (0.5, "middle"), (1, "end")):
        drawing.text(240 * share, 25, f"{100 * share:.0f} %", anchor=anchor)
    return drawing.markup()


def _colour(value: float) -> str:
    return hexadecimal(heat(value))


def _png(values: npt.NDArray[np.float64]) -> str:
    """One pixel for each value between 0 and 1, nothing where there is none, as a data URI."""
    from PIL import Image

    known = np.nan_to_num(values, nan=0.0)
    level = np.where(np.isnan(values), 0, 1 + np.rint(known * _LEVELS)).astype(np.uint8)
    picture = Image.fromarray(level, mode="P")
    colours = [(0, 0, 0), *(heat(place / _LEVELS) for place in range(_LEVELS + 1))]
    picture.putpalette([part for colour in colours for part in colour])
    content = io.BytesIO()
    picture.save(content, format="PNG", optimize=True, transparency=0)
    return f"data:image/png;base64,{base64.b64encode(content.getvalue()).decode()}"
