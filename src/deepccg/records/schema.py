"""What a run writes down: one JSON object per line: ``evaluation``, ``training`` or ``shift``.

Counts are stored, never rates, so that every metric can be recomputed exactly after the run.
Values are checked when a record is made, hence also when it is read back.
"""

import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from deepccg.records.checks import (
    RecordError,
    count,
    fields_of,
    finite,
    integer,
    items,
    require,
)
from deepccg.records.shift import Shift


@dataclass(frozen=True)
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

    task: int
    classes: tuple[int, ...]
    images: int
    task_correct: int
    class_correct: int | None

    def __post_init__(self) -> None:
        count("task", self.task)
        require(bool(self.classes), f"task {self.task} has no classes")
        for label in self.classes:
            integer("a label", label)
        count("images", self.images, at_least=1)
        count("task_correct", self.task_correct, at_most=self.images)
        if self.class_correct is not None:
            count("class_correct", self.class_correct, at_most=self.images)

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON values."""
        return dict(vars(self)) | {"classes": list(self.classes)}

    @classmethod
    def from_json(cls, data: object) -> "TaskScore":
        """Check and rebuild what ``to_json`` gave."""
        values = fields_of(cls, data)
        return cls(**values | {"classes": tuple(items("classes", values["classes"]))})


@dataclass(frozen=True)
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

    label: int
    images: int
    class_correct: int | None
    task_correct: float

    def __post_init__(self) -> None:
        integer("a label", self.label)
        count("images", self.images, at_least=1)
        if self.class_correct is not None:
            count("class_correct", self.class_correct, at_most=self.images)
        finite("task_correct", self.task_correct)
        require(
            0 <= self.task_correct <= self.images,
            f"task_correct must lie in 0..{self.images}, not {self.task_correct}",
        )

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON values."""
        return dict(vars(self))

    @classmethod
    def from_json(cls, data: object) -> "ClassScore":
        """Check and rebuild what ``to_json`` gave."""
        return cls(**fields_of(cls, data))


@dataclass(frozen=True)
class Evaluation:
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

    type: ClassVar[str] = "evaluation"

    step: int
    examples: int
    task: int
    final: bool
    images: int
    of_images: int
    tasks: tuple[TaskScore, ...]
    classes: tuple[ClassScore, ...]

    def __post_init__(self) -> None:
        count("step", self.step)
        count("examples", self.examples)
        count("task", self.task)
        final = reprlib.repr(self.final)
        require(isinstance(self.final, bool), f"final must be true or false, not {final}")
        count("images", self.images, at_least=1)
        count("of_images", self.of_images, at_least=self.images)
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

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return (
            {"type": self.type}
            | dict(vars(self))
            | {
                "tasks": [score.to_json() for score in self.tasks],
                "classes": [score.to_json() for score in self.classes],
            }
        )

    @classmethod
    def from_json(cls, data: object) -> "Evaluation":
        """Check and rebuild what ``to_json`` gave."""
        values = fields_of(cls, data)
        tasks = tuple(TaskScore.from_json(score) for score in items("tasks", values["tasks"]))
        classes = tuple(
            ClassScore.from_json(score) for score in items("classes", values["classes"])
        )
        return cls(**values | {"tasks": tasks, "classes": classes})


@dataclass(frozen=True)
class Training:
    """What some training step had to tell; written now and then, not at every step.

    Args:
        step: Batches learned, this one included.
        loss: The loss that was stepped on.
        extra: Further scalars, by name.
    """

    type: ClassVar[str] = "training"

    step: int
    loss: float
    extra: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count("step", self.step)
        finite("loss", self.loss)
        extra = reprlib.repr(self.extra)
        require(isinstance(self.extra, Mapping), f"extra must be an object, not {extra}")
        for name, value in self.extra.items():
            finite(name, value)

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {"type": self.type} | dict(vars(self)) | {"extra": dict(self.extra)}

    @classmethod
    def from_json(cls, data: object) -> "Training":
        """Check and rebuild what ``to_json`` gave."""
        return cls(**fields_of(cls, data))


Record: TypeAlias = Evaluation | Training | Shift

_KINDS: tuple[type[Evaluation] | type[Training] | type[Shift], ...] = (Evaluation, Training, Shift)


def record_from_json(data: object) -> Record:
    """Rebuild a record of any type."""
    named = data.get("type") if isinstance(data, dict) else None
    for kind in _KINDS:
        if kind.type == named:
            return kind.from_json(data)
    known = ", ".join(kind.type for kind in _KINDS)
    raise RecordError(f"a record has one of the types {known}, not {reprlib.repr(named)}")
