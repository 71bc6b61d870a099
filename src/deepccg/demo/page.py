"""The demo page: it plays a small run in two dimensions."""

import base64
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from deepccg.demo.simulate import REACH, DemoRun, Trajectory
from deepccg.report.figures import SeriesStyle, svg
from deepccg.report.figures import description as fig
from deepccg.report.page import render

_LEVELS = 65535  # of a position, from one edge of the plane to the other
_CHART_WIDTHS = {"wide": 900, "narrow": 340}  # pixels
_LATER = 6  # batches after which a task's second sentence comes
_RUN_UP = 4  # batches that play before the telling one


class View(NamedTuple):
    """One panel of the page: a trajectory under a classifier."""

    name: str
    about: str
    slot: int  # the number of its colour
    trajectory: int  # whose embeddings it shows
    lag: int  # how many steps its classifier is behind
    accuracy: npt.NDArray[np.float32]  # ``[T]``


def demo_page(run: DemoRun, command: str) -> str:
    """Return the page, complete: no other file is needed, nothing is fetched.

    It shows ``command`` as what makes it again.
    """
    trajectories, batches = list(run.trajectories.values()), len(run.tasks)
    class_names, shown = [str(label) for label in run.classes], views(trajectories)
    telling = telling_batch(trajectories[0], run.tasks)
    values = {
        "reach": REACH,
        "classes": class_names,
        "labels": run.labels.tolist(),
        "batches": batches,
        "start": max(telling - _RUN_UP, 0),
        "trajectories": [
            {
                "positions": packed_positions(each.positions),
                "surfaces": _base64(each.surfaces.astype("<f4")),
            }
            for each in trajectories
        ],
        "views": [
            {
                "trajectory": view.trajectory,
                "lag": view.lag,
                "accuracy": [None if np.isnan(v) else round(float(v), 4) for v in view.accuracy],
            }
            for view in shown
        ],
        "story": _story(trajectories, class_names, run.tasks, telling),
    }
    return render(
        "demo",
        scripts=("demo",),
        title="Representation shift, batch by batch",
        views=shown,
        charts={size: _chart(shown, run.tasks, w) for size, w in _CHART_WIDTHS.items()},
        run=values,
        batches=batches,
        class_names=class_names,
        command=command,
    )


def views(trajectories: Sequence[Trajectory]) -> list[View]:
    """Return the panels: all trajectories, and the first under the classifier before the step."""
    first, *others = trajectories
    lagging = View(
        "One step late",
        f"The points of {first.name} under its classifier of the step before: what the step costs "
        f"if the classifier does not follow.",
        slot=2,
        trajectory=0,
        lag=1,
        accuracy=first.stale,
    )
    own = [
        View(each.name, each.about, slot=k, trajectory=k, lag=0, accuracy=each.accuracy)
        for k, each in enumerate((first, *others))
    ]
    return [own[0], lagging, *own[1:]]


def telling_batch(trajectory: Trajectory, tasks: npt.NDArray[np.int64]) -> int:
    """Return the batch at which the classifier of the step before is most wrong.

    The first batch of a task is none: the classifier before it has not met the new classes.
    """
    misalignment = trajectory.stale - trajectory.accuracy
    inside = np.flatnonzero((np.diff(tasks) == 0) & (tasks[1:] > 0)) + 1
    return int(inside[misalignment[inside].argmin()]) if len(inside) else 0


def packed_positions(positions: npt.NDArray[np.float32]) -> str:
    """Encode positions in the plane as 16-bit numbers, base64."""
    share = (np.clip(positions, -REACH, REACH) + REACH) / (2 * REACH)
    return _base64(np.rint(share * _LEVELS).astype("<u2"))


def _base64(values: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _story(
    panels: Sequence[Trajectory],
    names: Sequence[str],
    tasks: npt.NDArray[np.int64],
    telling: int,
) -> list[dict[str, object]]:
    """Return sentences on what to look at, each with the batch it comes with, in their order."""
    starts = [int(np.flatnonzero(tasks == task)[0]) for task in range(int(tasks.max()) + 1)]
    per_task = len(names) // len(starts)
    first, other = panels[0], panels[1].name
    story: dict[int, str] = {}
    for task, start in enumerate(starts):
        new = " and ".join(names[task * per_task : (task + 1) * per_task])
        if task == 0:
            story[start] = f"The first two digits arrive: {new}. Both networks pull them apart."
            continue
        story[start] = (
            f"Two new digits arrive: {new}. Each step that makes room for them moves the points of "
            f"the old digits, too: representation shift."
        )
        after = telling if tasks[telling] == task else start
        story[min(after + _LATER, len(tasks) - 1)] = (
            f"{first.name} recomputes its Gaussians from the memory after every step: they are "
            f"where the points are now. The softmax head of {other} was fitted to where points "
            f"used to be, and follows by small steps only."
        )
    if telling:
        story[telling] = (
            f"A large step. The classifier of the step before would have "
            f"{_percent(first.stale[telling])} right on the moved points; recomputed from the "
            f"memory it has {_percent(first.accuracy[telling])}."
        )
    ends = " and ".join(f"{_percent(panel.accuracy[-1])} with {panel.name}" for panel in panels)
    story[len(tasks) - 1] = f"The end of the stream: {ends} of the test images are right."
    return [{"from": start, "text": story[start]} for start in sorted(story)]


def _percent(share: np.float32) -> str:
    return f"{100 * share:.0f}\u00a0%"


def _chart(shown: Sequence[View], tasks: npt.NDArray[np.int64], width: int) -> Markup:
    """Draw accuracy over time, with a line that the script moves."""
    ends = [f"{view.name} ends at {100 * view.accuracy[-1]:.0f} %" for view in shown]
    starts = np.flatnonzero(np.diff(tasks)) + 2  # batches count from 1
    boundaries = [fig.Rule(float(start), kind="boundary") for start in starts]
    series = [
        fig.Series(
            view.name,
            SeriesStyle(view.slot, view.slot),
            line=tuple(
                (float(t), 100 * float(v))
                for t, v in enumerate(view.accuracy, start=1)
                if np.isfinite(v)
            ),
        )
        for view in sorted(shown, key=lambda view: -view.lag)  # what lags is drawn below
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
