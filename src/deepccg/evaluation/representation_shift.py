"""Representation shift: how one batch moves the embeddings of the first task's test images."""

from collections.abc import Callable

import torch
from torch import Tensor

from deepccg.core import Diverged, Learner, Task, TestSet
from deepccg.evaluation.evaluate import predicted_labels
from deepccg.records import Mode, Shift


class ShiftMeter:
    """Measures what each step does to the embeddings and the accuracy of the same images.

    Each step costs one forward of the images: the embeddings after one step are those before the
    next. Classifiers that are derived from memory also embed the examples they are derived from.

    Args:
        test: The images; their first task is the one they belong to.
        mode: ``task`` classifies them among that task's classes, ``class`` among all seen.
        learner: The learner before the first step that is measured.
    """

    def __init__(self, test: TestSet, mode: Mode, learner: Learner) -> None:
        self._x, self._y = test.x, test.y.cpu()
        self._mode: Mode = mode
        self._task: Task | None = test.tasks[0] if mode == "task" else None
        self._before = self._snapshot(learner)

    def measure(self, learner: Learner, *, step: int, task: int) -> Shift:
        """Return what the last batch has done; ``task`` is the place of its task in the stream."""
        (old, correct_before), (new, correct_after) = self._before, self._snapshot(learner)
        self._before = new, correct_after
        distance = torch.linalg.vector_norm((old - new).double(), dim=1).mean()
        pairs = torch.pdist(old.double())  # |z_i - z_j|; none for a single image
        spread = pairs.mean() if len(pairs) else pairs.sum()
        if not (torch.isfinite(distance) and torch.isfinite(spread)):
            raise Diverged(f"the embeddings are not finite after step {step}: try a smaller lr")
        return Shift(
            step=step,
            task=task,
            mode=self._mode,
            images=len(self._y),
            distance=float(distance),
            spread=float(spread),
            correct_before=correct_before(old),
            correct_after=correct_after(new),
            correct_stale=correct_before(new),
        )

    @torch.no_grad()
    def _snapshot(self, learner: Learner) -> tuple[Tensor, Callable[[Tensor], int]]:
        """Return embeddings ``[N, D]``, and what counts those that are labelled correctly now."""
        z = learner.representation(self._x, self._task)
        classifier, columns = learner.classifier(self._task), learner.columns(self._task)

        @torch.no_grad()
        def correct(z: Tensor) -> int:
            return int((predicted_labels(classifier(z), columns) == self._y).sum())

        return z, correct
