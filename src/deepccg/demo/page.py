"""The demo page: it plays a small run in two dimensions."""

import base64
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from deepccg.demo.simulate import REACH, DemoRun, Trajectory
from deepccg.report.figures import SeriesStyle, svg
from deepccg.report.figures import description as fig
from deepccg.report.page import render

_LEVELS = 65535  # of a position, from one edge of the plane to the other
_CHART_WIDTHS = {"wide": 760, "narrow": 340}  # pixels
_LATER = 6  # batches after which a task's second sentence comes


def demo_page(run: DemoRun, command: str) -> str:
    """Return the page, complete: no other file is needed, nothing is fetched.

    It shows ``command`` as what makes it again.
    """
    panels, batches = list(run.trajectories.values()), len(run.tasks)
    class_names = [str(label) for label in run.classes]
    values = {
        "reach": REACH,
        "classes": class_names,
        "labels": run.labels.tolist(),
        "batches": batches,
        "panels": [
            {
                "positions": packed_positions(panel.positions),
                "surfaces": _base64(panel.surfaces.astype("<f4")),
                "accuracy": [round(float(value), 4) for value in panel.accuracy],
            }
            for panel in panels
        ],
        "story": _story(panels, class_names, run.tasks),
    }
    return render(
        "demo",
        title="Representation shift, batch by batch",
        panels=panels,
        charts={size: _chart(panels, run.tasks, w) for size, w in _CHART_WIDTHS.items()},
        run=values,
        batches=batches,
        class_names=class_names,
        command=command,
    )


def packed_positions(positions: npt.NDArray[np.float32]) -> str:
    """Encode positions in the plane as 16-bit numbers, base64."""
    share = (np.clip(positions, -REACH, REACH) + REACH) / (2 * REACH)
    return _base64(np.rint(share * _LEVELS).astype("<u2"))


def _base64(values: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _story(
    panels: Sequence[Trajectory], names: Sequence[str], tasks: npt.NDArray[np.int64]
) -> list[dict[str, object]]:
    """Return sentences on what to look at, each with the batch it comes with."""
    starts = [int(np.flatnonzero(tasks == task)[0]) for task in range(int(tasks.max()) + 1)]
    per_task = len(names) // len(starts)
    story: list[tuple[int, str]] = []
    for task, start in enumerate(starts):
        new = " and ".join(names[task * per_task : (task + 1) * per_task])
        if task == 0:
            text = f"The first two digits arrive: {new}. Both networks pull them apart."
            story.append((start, text))
            continue
        text = (
            f"Two new digits arrive: {new}. Each step that makes room for them moves the points of "
            f"the old digits, too: representation shift."
        )
        story.append((start, text))
        text = (
            f"{panels[0].name} recomputes its Gaussians from the memory after every step: they are "
            f"where the points are now. The softmax head of {panels[1].name} was fitted to where "
            f"points used to be, and follows by small steps only."
        )
        story.append((start + _LATER, text))
    ends = " and ".join(f"{100 * panel.accuracy[-1]:.0f} % with {panel.name}" for panel in panels)
    text = f"The end of the stream: {ends} of the test images are right."
    return [{"from": start, "text": text} for start, text in (*story, (len(tasks) - 1, text))]


def _chart(panels: Sequence[Trajectory], tasks: npt.NDArray[np.int64], width: int) -> Markup:
    """Draw accuracy over time, with a line that the script moves."""
    ends = [f"{panel.name} ends at {100 * panel.accuracy[-1]:.0f} %" for panel in panels]
    starts = np.flatnonzero(np.diff(tasks)) + 2  # batches count from 1
    boundaries = [fig.Rule(float(start), kind="boundary") for start in starts]
    series = [
        fig.Series(
            panel.name,
            SeriesStyle(k, k),
            line=tuple((float(t), 100 * float(v)) for t, v in enumerate(panel.accuracy, start=1)),
        )
        for k, panel in enumerate(panels)
    ]
    return svg(
        fig.Panel(
            "Accuracy over time",
            fig.axis_between("batches", 1, len(tasks)),
            fig.rounded_axis("accuracy, %", [0, 100]),
            tuple(series),
            alt=", ".join(ends),
            rules=(*boundaries, fig.Rule(1, kind="now")),
            width=width,
            height=128,
            left=34,
            right=10,
        )
    )
