"""What a run writes down: one JSON object per line: ``evaluation``, ``training`` or ``shift``.

Counts are stored, never rates, so that every metric can be recomputed exactly after the run.
Values are checked when a record is made, hence also when it is read back.
"""

import json
from collections.abc import Sequence
from dataclasses import field
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
from pydantic import Field, Strict, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from deepccg.records.validation import (
    Count,
    Label,
    NotNegative,
    Number,
    Positive,
    record_class,
    record_error,
    require,
    require_at_most,
)


class _AsJson:
    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        values: dict[str, Any] = to_jsonable_python(self)
        return values


@record_class
class TaskScore:
    """How the test images of one task were classified.

    Args:
        task: The task's place in the stream, counted from 0.
        classes: Labels of the task's classes.
        images: Test images whose label is one of them.
        task_correct: Images classified correctly among the task's classes.
        class_correct: Images classified correctly among all classes seen; ``None`` if the method
            cannot predict without a task.
    """

    task: Count
    classes: tuple[Label, ...]
    images: Positive
    task_correct: Count
    class_correct: Count | None

    def __post_init__(self) -> None:
        require(bool(self.classes), f"task {self.task} has no classes")
        require_at_most(
            self.images, task_correct=self.task_correct, class_correct=self.class_correct
        )


@record_class
class ClassScore:
    """How the test images of one class were classified.

    Args:
        label: The class.
        images: Its test images.
        class_correct: Images classified correctly among all classes seen; ``None`` if the method
            cannot predict without a task.
        task_correct: Images classified correctly among a task's classes, averaged over the tasks
            met that contain the class: a number between 0 and ``images``.
    """

    label: Label
    images: Positive
    class_correct: Count | None
    task_correct: NotNegative

    def __post_init__(self) -> None:
        require_at_most(
            self.images, class_correct=self.class_correct, task_correct=self.task_correct
        )


@record_class
class Evaluation(_AsJson):
    """The learner's score at one moment of the stream, over the tasks met by then.

    Args:
        step: Batches learned.
        examples: Examples learned.
        task: The place in the stream of the task of the last batch learned.
        final: Whether the stream was at its end.
        images: Test images scored.
        of_images: Test images there are, before any cap and with classes not met yet.
        tasks: One score for each task met, in order of arrival.
        classes: One score for each class of these tasks that has test images.
    """

    type: Literal["evaluation"] = field(default="evaluation", kw_only=True, repr=False)
    step: Count
    examples: Count
    task: Count
    final: Annotated[bool, Strict()]
    images: Positive
    of_images: Positive
    tasks: tuple[TaskScore, ...]
    classes: tuple[ClassScore, ...]

    def __post_init__(self) -> None:
        require(
            self.of_images >= self.images,
            f"of_images must be at least {self.images}, not {self.of_images}",
        )
        require(
            self.task in {score.task for score in self.tasks},
            f"the current task {self.task} has no score",
        )
        require(
            self.images == sum(score.images for score in self.classes),
            f"the classes' images do not add up to {self.images}",
        )
        scores: tuple[TaskScore | ClassScore, ...] = (*self.tasks, *self.classes)
        require(
            len({score.class_correct is None for score in scores}) == 1,
            "class_correct must be null everywhere or nowhere",
        )


@record_class
class Training(_AsJson):
    """Loss and further scalars of a training step; written at some steps, not at every one.

    Args:
        step: Batches learned, this one included.
        loss: The loss of the step.
        extra: Further scalars, by name.
    """

    type: Literal["training"] = field(default="training", kw_only=True, repr=False)
    step: Count
    loss: Number
    extra: dict[str, Number] = field(default_factory=dict)


_Floats: TypeAlias = npt.NDArray[np.float64]
ShiftScale: TypeAlias = Literal["distance", "relative"]
ShiftMeasure: TypeAlias = Literal["accuracy_change", "misalignment"]


@record_class
class Shift(_AsJson):
    """What one batch did to the first task's test images.

    Args:
        step: Batches learned, this one included.
        task: The place in the stream of the batch's task.
        mode: ``task``: classified among the first task's classes; ``class``: among all seen.
        images: How many images were followed.
        distance: Mean over the images of ``|z_after - z_before|``, Euclidean, in the units of the
            network's embedding.
        spread: Mean of ``|z - z'|`` over all pairs of the images before the step.
        correct_before: Images classified correctly before the step.
        correct_after: Images classified correctly after the step.
        correct_stale: Images classified correctly from the embeddings after the step by the
            classifier from before it.
    """

    type: Literal["shift"] = field(default="shift", kw_only=True, repr=False)
    step: Count
    task: Count
    mode: Literal["task", "class"]
    images: Positive
    distance: NotNegative
    spread: NotNegative
    correct_before: Count
    correct_after: Count
    correct_stale: Count

    def __post_init__(self) -> None:
        require_at_most(
            self.images,
            correct_before=self.correct_before,
            correct_after=self.correct_after,
            correct_stale=self.correct_stale,
        )

    @property
    def relative(self) -> float | None:
        """The distance in units of the spread, free of scale; ``None`` without a spread."""
        return self.distance / self.spread if self.spread > 0 else None

    @property
    def accuracy_change(self) -> float:
        """Accuracy after the step minus that before it, as a fraction."""
        return (self.correct_after - self.correct_before) / self.images

    @property
    def misalignment(self) -> float:
        """Accuracy on the new embeddings with the old classifier minus that with the new one.

        Negative where the old classifier no longer fits the embeddings and the new one does.
        """
        return (self.correct_stale - self.correct_after) / self.images


def shift_points(
    shifts: Sequence[Shift], scale: ShiftScale, measure: ShiftMeasure
) -> tuple[_Floats, _Floats]:
    """How far each batch moved the images, and what it did to their accuracy (a fraction).

    Args:
        shifts: The records of one or several runs.
        scale: ``distance``, or ``relative`` to the spread; where there is no spread no point.
        measure: ``accuracy_change`` or ``misalignment``.
    """
    pairs = [(getattr(shift, scale), getattr(shift, measure)) for shift in shifts]
    known = [(x, y) for x, y in pairs if x is not None]
    points = np.array(known, dtype=np.float64).reshape(-1, 2)
    return points[:, 0], points[:, 1]


Record: TypeAlias = Evaluation | Training | Shift

TYPES = ("evaluation", "training", "shift")
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])


def record_from_json(data: object) -> Record:
    """Rebuild a record of any type from the values that ``to_json`` returned."""
    try:
        return _RECORD.validate_python(data)
    except ValidationError as error:
        raise record_error(error, types=TYPES) from None


def record_from_line(line: bytes) -> Record:
    """Rebuild a record from a line of ``records.jsonl``."""
    try:
        return _RECORD.validate_json(line)
    except ValidationError as error:
        raise record_error(error, types=TYPES) from None


def record_line(record: Record) -> bytes:
    """The record as a line of ``records.jsonl``, without the line's end."""
    return json.dumps(record.to_json(), allow_nan=False, separators=(",", ":")).encode()
