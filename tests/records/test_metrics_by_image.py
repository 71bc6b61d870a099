"""Every metric equals what counting single images one by one gives, with overlapping tasks."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from deepccg.records import ClassScore, Evaluation, TaskScore, summary


@dataclass
class Images:
    """A sliding window over classes, and which test images were classified correctly when.

    ``right[t, n, 0]``: image n at the end of task t, among all classes; ``right[t, n, 1 + i]``:
    among the classes of task i.
    """

    windows: list[tuple[int, ...]]
    labels: list[int]
    right: np.ndarray

    def of(self, classes) -> list[int]:
        return [n for n, label in enumerate(self.labels) if label in classes]

    def met(self, t: int) -> list[int]:
        return sorted(set().union(*self.windows[: t + 1]))


@st.composite
def images(draw) -> Images:
    classes = draw(st.integers(2, 5))
    length = draw(st.integers(1, classes))
    windows = [tuple(range(i, i + length)) for i in range(classes - length + 1)]
    labels = [c for c in range(classes) for _ in range(draw(st.integers(1, 4)))]
    shape = (len(windows), len(labels), 1 + len(windows))
    return Images(windows, labels, draw(hnp.arrays(np.bool_, shape)))


def evaluation_after(images: Images, t: int) -> Evaluation:
    right = images.right[t]
    tasks = []
    for i, window in enumerate(images.windows[: t + 1]):
        own = images.of(window)
        unmasked, masked = int(right[own, 0].sum()), int(right[own, 1 + i].sum())
        tasks.append(TaskScore(i, window, len(own), masked, unmasked))
    classes = []
    for label in images.met(t):
        own = images.of({label})
        masked = [right[own, 1 + task.task].sum() for task in tasks if label in task.classes]
        unmasked = int(right[own, 0].sum())
        classes.append(ClassScore(label, len(own), unmasked, float(np.mean(masked))))
    return Evaluation(
        step=t,
        examples=t,
        task=t,
        final=t + 1 == len(images.windows),
        images=len(images.of(images.met(t))),
        of_images=len(images.labels),
        tasks=tuple(tasks),
        classes=tuple(classes),
    )


def by_image(images: Images, mode: str) -> dict[str, float]:
    last = len(images.windows) - 1

    def on_task(t: int, i: int) -> float:
        column = 1 + i if mode == "task" else 0
        return np.mean([images.right[t, n, column] for n in images.of(images.windows[i])])

    def average(t: int) -> float:
        if mode == "task":
            return np.mean([on_task(t, i) for i in range(t + 1)])
        return np.mean([images.right[t, n, 0] for n in images.of(images.met(t))])

    def on_class(label: int) -> float:
        own = images.of({label})
        tasks = [i for i, window in enumerate(images.windows) if label in window]
        columns = [1 + i for i in tasks] if mode == "task" else [0]
        return np.mean([images.right[last, n, column] for n in own for column in columns])

    result = {
        "accuracy": average(last),
        "balanced_accuracy": np.mean([on_class(label) for label in images.met(last)]),
    }
    if last:
        best = [max(on_task(t, i) for t in range(i, last)) for i in range(last)]
        result["forgetting"] = np.mean([best[i] - on_task(last, i) for i in range(last)])
        gains = [on_task(last, i) - on_task(i, i) for i in range(last)]
        result["backward_transfer"] = np.mean(gains)
        result["anytime_accuracy"] = np.mean([average(t) for t in range(last + 1)])
    if mode == "class":
        result["accuracy_by_task"] = np.mean([on_task(last, i) for i in range(last + 1)])
    return {f"{mode}_{name}": value for name, value in result.items()}


@given(images())
def test_all_metrics_equal_counting_image_by_image(images):
    run = [evaluation_after(images, t) for t in range(len(images.windows))]
    measured = {name: value for name, value in summary(run).items() if value is not None}
    assert measured == pytest.approx(by_image(images, "task") | by_image(images, "class"))
