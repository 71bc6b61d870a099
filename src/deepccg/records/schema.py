"""What a run writes down: one JSON object per line: ``evaluation``, ``training`` or ``shift``.

Counts are stored, never rates, so that every metric can be recomputed exactly after the run.
Values are checked when a record is made, hence also when it is read back.
"""

import math
import reprlib
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

_LARGEST = 2**63 - 1


class RecordError(ValueError):
    """A record, or a run directory, that cannot be used."""


def require(holds: bool, otherwise: str) -> None:
    """Raise ``RecordError(otherwise)`` unless ``holds``."""
    if not holds:
        raise RecordError(otherwise)


def integer(name: str, value: object) -> None:
    """``value`` is a plain integer; booleans and NumPy scalars are not."""
    plain = type(value) is int and -_LARGEST <= value <= _LARGEST
    require(plain, f"{name} must be an integer, not {reprlib.repr(value)}")


def count(name: str, value: int, *, at_least: int = 0, at_most: int | None = None) -> None:
    """``value`` is an integer between the bounds."""
    integer(name, value)
    require(value >= at_least, f"{name} must be at least {at_least}, not {value}")
    require(at_most is None or value <= at_most, f"{name} must be at most {at_most}, not {value}")


def finite(name: str, value: object) -> None:
    """``value`` is a plain number, neither infinite nor NaN."""
    plain = (type(value) is int and -_LARGEST <= value <= _LARGEST) or (
        isinstance(value, float) and math.isfinite(value)
    )
    require(plain, f"{name} must be a finite number, not {reprlib.repr(value)}")


def items(name: str, value: object) -> list[Any]:
    """``value``, which must be a list."""
    if not isinstance(value, list):
        raise RecordError(f"{name} must be a list, not {reprlib.repr(value)}")
    return value


def fields_of(record: "type[DataclassInstance]", data: object) -> dict[str, Any]:
    """The fields of ``record`` in ``data``: all of them, and besides ``type`` nothing else."""
    if not isinstance(data, dict):
        raise RecordError(f"{record.__name__} must be an object, not {reprlib.repr(data)}")
    names = {spec.name for spec in fields(record)}
    given = data.keys() - {"type"}
    problems = [f"lacks {name!r}" for name in sorted(names - given)]
    problems += [f"has an unknown key {reprlib.repr(name)}" for name in sorted(given - names)]
    require(not problems, f"{record.__name__} {' and '.join(problems[:3])}")
    return {name: data[name] for name in names}


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


_Floats: TypeAlias = npt.NDArray[np.float64]
ShiftScale: TypeAlias = Literal["distance", "relative"]
ShiftMeasure: TypeAlias = Literal["accuracy_change", "misalignment"]


@dataclass(frozen=True)
class Shift:
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
        correct_after: And after it.
        correct_stale: And with the embeddings from after it and the classifier from before it.
    """

    type: ClassVar[str] = "shift"

    step: int
    task: int
    mode: str
    images: int
    distance: float
    spread: float
    correct_before: int
    correct_after: int
    correct_stale: int

    def __post_init__(self) -> None:
        count("step", self.step)
        count("task", self.task)
        require(
            self.mode in ("task", "class"), f"mode must be task or class, not {self.mode!r:.80}"
        )
        count("images", self.images, at_least=1)
        for name in ("distance", "spread"):
            finite(name, getattr(self, name))
            require(getattr(self, name) >= 0, f"{name} must not be negative")
        for name in ("correct_before", "correct_after", "correct_stale"):
            count(name, getattr(self, name), at_most=self.images)

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

    def to_json(self) -> dict[str, Any]:
        """The record as plain JSON values."""
        return {"type": self.type} | dict(vars(self))

    @classmethod
    def from_json(cls, data: object) -> "Shift":
        """Check and rebuild what ``to_json`` gave."""
        return cls(**fields_of(cls, data))


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

_KINDS: tuple[type[Evaluation] | type[Training] | type[Shift], ...] = (Evaluation, Training, Shift)


def record_from_json(data: object) -> Record:
    """Rebuild a record of any type."""
    named = data.get("type") if isinstance(data, dict) else None
    for kind in _KINDS:
        if kind.type == named:
            return kind.from_json(data)
    known = ", ".join(kind.type for kind in _KINDS)
    raise RecordError(f"a record has one of the types {known}, not {reprlib.repr(named)}")
