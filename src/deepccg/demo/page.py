"""The demo page: it plays a small run in two dimensions."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from markupsafe import Markup

from deepccg.report.figures import SeriesStyle, svg
from deepccg.report.figures import description as fig
from deepccg.report.page import render

Floats = npt.NDArray[np.float32]

_LEVELS = 65535  # of a position, from one edge of the plane to the other
_LATER = 6  # batches after which a task's second sentence comes


@dataclass(frozen=True)
class Panel:
    """One learner.

    Args:
        name: What readers call it.
        about: One sentence on its classifier.
        positions: Embeddings of the images shown, ``[T, N, 2]``, within ``reach`` of 0.
        surfaces: ``k, l_x, l_y, a`` of each class, ``[T, C, 4]``: its score at z is
            ``k + l . z - a |z|^2``; NaN before it has arrived.
        accuracy: ``[T]``, as fractions.
    """

    name: str
    about: str
    positions: Floats
    surfaces: Floats
    accuracy: Floats


def demo_page(
    panels: Sequence[Panel],
    *,
    labels: npt.NDArray[np.int64],
    class_names: Sequence[str],
    tasks: npt.NDArray[np.int64],
    reach: float,
    command: str,
) -> str:
    """Return the page, complete: no other file is needed, nothing is fetched.

    Args:
        panels: Two learners of the same stream.
        labels: Of the images shown, as indices into ``class_names``, ``[N]``.
        class_names: In order of arrival.
        tasks: The task of each batch, ``[T]``.
        reach: How far the plane goes from 0.
        command: That makes this page.
    """
    run = {
        "reach": reach,
        "classes": list(class_names),
        "labels": labels.tolist(),
        "batches": len(tasks),
        "panels": [
            {
                "positions": packed_positions(panel.positions, reach),
                "surfaces": _base64(panel.surfaces.astype("<f4")),
                "accuracy": [round(float(value), 4) for value in panel.accuracy],
            }
            for panel in panels
        ],
        "story": _story(panels, class_names, tasks),
    }
    return render(
        "demo",
        title="Representation shift, batch by batch",
        panels=panels,
        charts={"wide": _chart(panels, tasks, 760), "narrow": _chart(panels, tasks, 340)},
        run=run,
        batches=len(tasks),
        class_names=class_names,
        command=command,
    )


def packed_positions(positions: Floats, reach: float) -> str:
    """Encode positions in the plane as 16-bit numbers, base64."""
    share = (np.clip(positions, -reach, reach) + reach) / (2 * reach)
    return _base64(np.rint(share * _LEVELS).astype("<u2"))


def _base64(values: npt.NDArray[np.generic]) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode()


def _story(
    panels: Sequence[Panel], names: Sequence[str], tasks: npt.NDArray[np.int64]
) -> list[dict[str, object]]:
    """Return sentences on what to look at, each with the batch it comes with."""
    starts = [int(np.flatnonzero(tasks == task)[0]) for task in range(int(tasks.max()) + 1)]
    per_task = len(names) // len(starts)
    story: list[dict[str, object]] = []
    for task, start in enumerate(starts):
        new = " and ".join(names[task * per_task : (task + 1) * per_task])
        if task == 0:
            text = f"The first two digits arrive: {new}. Both networks pull them apart."
            story.append({"from": start, "text": text})
            continue
        text = (
            f"Two new digits arrive: {new}. Each step that makes room for them moves the points of "
            f"the old digits, too: representation shift."
        )
        story.append({"from": start, "text": text})
        text = (
            f"{panels[0].name} recomputes its Gaussians from the memory after every step: they are "
            f"where the points are now. The softmax head of {panels[1].name} was fitted to where "
            f"points used to be, and follows by small steps only."
        )
        story.append({"from": start + _LATER, "text": text})
    ends = " and ".join(f"{100 * panel.accuracy[-1]:.0f} % with {panel.name}" for panel in panels)
    text = f"The end of the stream: {ends} of the test images are right."
    return [*story, {"from": len(tasks) - 1, "text": text}]


def _chart(panels: Sequence[Panel], tasks: npt.NDArray[np.int64], width: int) -> Markup:
    """Draw accuracy over time, with a line that the script moves."""
    ends = [f"{panel.name} ends at {100 * panel.accuracy[-1]:.0f} %" for panel in panels]
    starts = np.flatnonzero(np.diff(tasks)) + 2  # batches count from 1
    boundaries = [fig.Rule(float(start), kind="boundary") for start in starts]
    curves = [
        tuple((float(t), 100 * float(v)) for t, v in enumerate(panel.accuracy, start=1))
        for panel in panels
    ]
    return svg(
        fig.Panel(
            "Accuracy over time",
            fig.axis_between("batches", 1, len(tasks)),
            fig.rounded_axis("accuracy, %", [0, 100]),
            tuple(
                fig.Series(panel.name, SeriesStyle(k, k), line=curve)
                for k, (panel, curve) in enumerate(zip(panels, curves, strict=True))
            ),
            alt=", ".join(ends),
            rules=(*boundaries, fig.Rule(1, kind="now")),
            width=width,
            height=128,
            left=34,
            right=10,
        )
    )
