"""Scoring a learner on held-out images.

One pass serves both scenarios and all tasks: each image is embedded once, and the predictions
under every task's mask are read off the same embedding. Images are visited class by class in
order of arrival, and only those of the same tasks are asked for together: an image is never scored
under a task that is not its own, which for a method with a network of its own for each task would
be a forward for nothing.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import TypeAlias

import torch
from torch import Tensor

from deepccg.core import Diverged, InputError, Learner, Task, TaskRequired, TestSet
from deepccg.records import ClassScore, Evaluation, TaskScore

PredictionCallback = Callable[[Tensor, Tensor], None]
Answers: TypeAlias = Counter[tuple[int, int]]  # images, by their label and the one predicted


def evaluate(
    learner: Learner,
    test: TestSet,
    *,
    step: int,
    examples: int,
    task: int,
    final: bool,
    tasks_met: int | None = None,
    of_images: int | None = None,
    chunk: int = 500,
    on_predictions: PredictionCallback | None = None,
) -> Evaluation:
    """Score ``learner`` on the test images of the tasks met so far, without changing it.

    Args:
        learner: What to score.
        test: Images, labels, and the stream's tasks in order of arrival.
        step: Batches learned so far.
        examples: Examples learned so far.
        task: Place in the stream of the task of the last batch learned.
        final: Whether the stream is at its end.
        tasks_met: How many tasks have been met; ``None`` means those up to ``task``.
        of_images: Size of the whole test set if ``test`` is a part of it; ``None``: it is not.
        chunk: How many images are classified at once.
        on_predictions: Called with images and their scores without a task, chunk by chunk.
    """
    met = test.tasks[: task + 1 if tasks_met is None else tasks_met]
    if not 0 <= task < len(met):
        raise InputError(f"task {task} is not among the {len(met)} tasks met of the test set")
    if chunk < 1:
        raise InputError(f"a chunk needs at least one image, not {chunk}")
    order = _visiting_order(test.y, met)
    images = Counter(test.y[order].tolist())
    for place, each in enumerate(met):
        if not any(images[label] for label in each.classes):
            raise InputError(f"task {place} has no test images: give some, or raise their cap")
    unmasked: Answers | None
    try:
        unmasked, *masked = _answers(learner, test, order, (None, *met), chunk, on_predictions)
    except TaskRequired:
        unmasked, masked = None, _answers(learner, test, order, met, chunk)
    return Evaluation(
        step=step,
        examples=examples,
        task=task,
        final=final,
        images=images.total(),
        of_images=len(test.y) if of_images is None else of_images,
        tasks=_task_scores(met, images, masked, unmasked),
        classes=_class_scores(met, images, masked, unmasked, confusions=final),
    )


def _visiting_order(y: Tensor, met: Sequence[Task]) -> Tensor:
    """Indices of the images of the tasks met, class by class in order of arrival."""
    labels = dict.fromkeys(label for task in met for label in task.classes)
    return torch.cat([(y == label).nonzero().flatten() for label in labels])


@torch.no_grad()  # not inference_mode: what a learner caches here may meet autograd later
def _answers(
    learner: Learner,
    test: TestSet,
    order: Tensor,
    masks: Sequence[Task | None],
    chunk: int,
    on_predictions: PredictionCallback | None = None,
) -> list[Answers]:
    """For each mask, how its images are classified."""
    counts: list[Answers] = [Counter() for _ in masks]
    for indices, needed in _chunks(test.y, order, masks, chunk):
        x, y = test.x[indices], test.y[indices].cpu()
        tasks = [masks[i] for i in needed]
        answers = learner.predict_logits_each(x, tasks)
        if on_predictions is not None and None in tasks:
            on_predictions(x, answers[tasks.index(None)])
        for i, logits in zip(needed, answers, strict=True):
            predicted = predicted_labels(logits, learner.columns(masks[i]))
            counts[i].update(zip(y.tolist(), predicted.tolist(), strict=True))
    return counts


def _chunks(
    y: Tensor, order: Tensor, masks: Sequence[Task | None], chunk: int
) -> Iterator[tuple[Tensor, list[int]]]:
    """Up to ``chunk`` images at a time, all of the same masks, and the places of these masks."""

    def needed(label: int) -> list[int]:
        return [i for i, mask in enumerate(masks) if mask is None or label in mask.classes]

    start = 0
    counts = Counter(y[order].tolist())  # in the order of the visits
    for own, labels in groupby(counts, key=needed):
        size = sum(counts[label] for label in labels)
        for part in torch.split(order[start : start + size], chunk):
            yield part, own
        start += size


def predicted_labels(logits: Tensor, columns: Sequence[int]) -> Tensor:
    """The label with the highest score, the first of equals, ``[B]``."""
    if logits.isnan().any():
        raise Diverged("the learner's scores are not numbers: try a smaller lr")
    return torch.tensor(columns)[logits.argmax(dim=1).cpu()]


def _task_scores(
    met: Sequence[Task],
    images: Counter[int],
    masked: Sequence[Answers],
    unmasked: Answers | None,
) -> tuple[TaskScore, ...]:
    return tuple(
        TaskScore(
            task=place,
            classes=task.classes,
            images=sum(images[label] for label in task.classes),
            task_correct=sum(answers[label, label] for label in task.classes),
            class_correct=None
            if unmasked is None
            else sum(unmasked[label, label] for label in task.classes),
        )
        for place, (task, answers) in enumerate(zip(met, masked, strict=True))
    )


def _class_scores(
    met: Sequence[Task],
    images: Counter[int],
    masked: Sequence[Answers],
    unmasked: Answers | None,
    *,
    confusions: bool,
) -> tuple[ClassScore, ...]:
    correct_under = {label: list[int]() for label in images}
    for task, answers in zip(met, masked, strict=True):
        for label in images.keys() & set(task.classes):
            correct_under[label].append(answers[label, label])
    mistaken = {label: list[tuple[int, int]]() for label in images}
    for (label, predicted), count in sorted((unmasked or {}).items()):
        if predicted != label:
            mistaken[label].append((predicted, count))
    return tuple(
        ClassScore(
            label=label,
            images=images[label],
            class_correct=None if unmasked is None else unmasked[label, label],
            task_correct=fmean(correct_under[label]),
            mistaken=tuple(mistaken[label]) if confusions and unmasked is not None else None,
        )
        for label in images
    )
