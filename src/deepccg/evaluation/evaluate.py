"""Scoring a learner on held-out images.

One pass serves both scenarios and all tasks: each image is embedded once, and the predictions
under every task's mask are read off the same embedding. Images are visited class by class in
order of arrival, and only those of the same tasks are asked for together: an image is never scored
under a task that is not its own, which for a method with a network of its own for each task would
be a forward for nothing. Where tasks differ in how they show the images (domains), each shows all
of them, in a pass of its own, and an image counts once for each.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import NamedTuple, TypeAlias

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
    parts = test.parts(len(met))
    images = [Counter(part.y[_visiting_order(part)].tolist()) for part in parts]
    for place, each in enumerate(met):
        own = images[place if test.domains else 0]
        if not any(own[label] for label in each.classes):
            raise InputError(f"task {place} has no test images: give some, or raise their cap")
    scored = [
        _scored(learner, part, own, chunk, on_predictions)
        for part, own in zip(parts, images, strict=True)
    ]
    return Evaluation(
        step=step,
        examples=examples,
        task=task,
        final=final,
        images=sum(own.total() for own in images),
        of_images=len(test) if of_images is None else of_images,
        tasks=_task_scores(scored),
        classes=_class_scores(scored, confusions=final),
    )


class _Scored(NamedTuple):
    """How the images of one part of a test set are classified."""

    tasks: tuple[Task, ...]
    images: Counter[int]  # by label
    masked: list[Answers]  # under each task's mask
    unmasked: Answers | None  # without a task, if the learner can


def _scored(
    learner: Learner,
    part: TestSet,
    images: Counter[int],
    chunk: int,
    on_predictions: PredictionCallback | None,
) -> _Scored:
    unmasked: Answers | None
    try:
        unmasked, *masked = _answers(learner, part, (None, *part.tasks), chunk, on_predictions)
    except TaskRequired:
        unmasked, masked = None, _answers(learner, part, part.tasks, chunk)
    return _Scored(part.tasks, images, masked, unmasked)


def _visiting_order(part: TestSet) -> Tensor:
    """Indices of the images of a part's tasks, class by class in order of arrival."""
    labels = dict.fromkeys(label for task in part.tasks for label in task.classes)
    return torch.cat([(part.y == label).nonzero().flatten() for label in labels])


@torch.no_grad()  # not inference_mode: what a learner caches here may meet autograd later
def _answers(
    learner: Learner,
    part: TestSet,
    masks: Sequence[Task | None],
    chunk: int,
    on_predictions: PredictionCallback | None = None,
) -> list[Answers]:
    """For each mask, how its images are classified."""
    counts: list[Answers] = [Counter() for _ in masks]
    for indices, needed in _chunks(part.y, _visiting_order(part), masks, chunk):
        x, y = part.images(indices), part.y[indices].cpu()
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


def _task_scores(scored: Sequence[_Scored]) -> tuple[TaskScore, ...]:
    found = [
        (task, answers, part)
        for part in scored
        for task, answers in zip(part.tasks, part.masked, strict=True)
    ]
    return tuple(
        TaskScore(
            task=place,
            classes=task.classes,
            images=sum(part.images[label] for label in task.classes),
            task_correct=sum(answers[label, label] for label in task.classes),
            class_correct=None
            if part.unmasked is None
            else sum(part.unmasked[label, label] for label in task.classes),
        )
        for place, (task, answers, part) in enumerate(found)
    )


def _class_scores(scored: Sequence[_Scored], *, confusions: bool) -> tuple[ClassScore, ...]:
    images = sum((part.images for part in scored), Counter[int]())
    unmasked: Answers | None = Counter()
    for part in scored:
        unmasked = None if part.unmasked is None or unmasked is None else unmasked + part.unmasked
    mistaken = {label: list[tuple[int, int]]() for label in images}
    for (label, predicted), count in sorted((unmasked or {}).items()):
        if predicted != label:
            mistaken[label].append((predicted, count))
    return tuple(
        ClassScore(
            label=label,
            images=images[label],
            class_correct=None if unmasked is None else unmasked[label, label],
            task_correct=sum(_task_correct(part, label) for part in scored),
            mistaken=tuple(mistaken[label]) if confusions and unmasked is not None else None,
        )
        for label in images
    )


def _task_correct(part: _Scored, label: int) -> float:
    """Images of a class that are classified correctly, averaged over the tasks they are of."""
    own = zip(part.tasks, part.masked, strict=True)
    return fmean(answers[label, label] for task, answers in own if label in task.classes)
