"""What a run writes down, one JSON object per line: ``evaluation``, ``training`` or ``shift``.

Counts are stored, never rates, so that every metric can be recomputed exactly after the run.
Values are checked when a record is made, hence also when it is read back.
"""

import json
import math
import reprlib
from collections.abc import Sequence
from dataclasses import field, fields
from functools import wraps
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast, dataclass_transform

from pydantic import ConfigDict, Field, PlainValidator, Strict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass
from pydantic_core import PydanticCustomError, to_jsonable_python

TYPES = ("evaluation", "training", "shift")
_LARGEST = 2**63 - 1
_Class = TypeVar("_Class", bound=type)

# Strict: neither booleans, nor text, nor NumPy's integers are numbers of a record.
Label: TypeAlias = Annotated[int, Strict(), Field(ge=-_LARGEST, le=_LARGEST)]
Count: TypeAlias = Annotated[int, Strict(), Field(ge=0, le=_LARGEST)]
Positive: TypeAlias = Annotated[int, Strict(), Field(ge=1, le=_LARGEST)]
NotNegative: TypeAlias = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]


class RecordError(ValueError):
    """A record, or a run directory, that cannot be used."""


def _number(value: object) -> object:
    """Return a finite number as it is: an integer stays one on disk."""
    whole = type(value) is int and -_LARGEST <= value <= _LARGEST
    if whole or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise PydanticCustomError("number", "Input should be a finite number")


Number: TypeAlias = Annotated[int | float, PlainValidator(_number)]


def _record_error(error: ValidationError, positional: Sequence[str] = ()) -> RecordError:
    """Return the first validation error as one line; ``positional`` names unnamed arguments."""
    first = error.errors(include_url=False)[0]
    kind, loc, given = first["type"], list(first["loc"]), reprlib.repr(first["input"])
    if kind == "value_error":  # of a __post_init__ below
        return RecordError(str(first["ctx"]["error"]))
    if kind.startswith("union_tag"):
        named = reprlib.repr(first["ctx"].get("tag"))
        return RecordError(f"a record has one of the types {', '.join(TYPES)}, not {named}")
    if loc and loc[0] in TYPES:  # which record it is
        del loc[0]
    elif loc and isinstance(loc[0], int) and loc[0] < len(positional):
        loc[0] = positional[loc[0]]
    place = reprlib.repr(".".join(map(str, loc)))[1:-1] or "a record"
    if kind == "missing":
        return RecordError(f"{place} is missing")
    if kind == "unexpected_keyword_argument":
        return RecordError(f"{place} is an unknown key")
    return RecordError(f"{place} {first['msg'].removeprefix('Input ')}, not {given}")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record_class(cls: _Class) -> _Class:
    """Make a frozen pydantic dataclass that takes no further keys and raises ``RecordError``."""
    made: Any = dataclass(frozen=True, config=ConfigDict(extra="forbid"))(cls)
    construct = made.__init__
    positional = [each.name for each in fields(made) if not each.kw_only]

    @wraps(construct)
    def construct_or_refuse(self: object, *values: object, **named: object) -> None:
        try:
            construct(self, *values, **named)
        except ValidationError as error:
            raise _record_error(error, positional) from None

    made.__init__ = construct_or_refuse
    return cast(_Class, made)


def _check_at_most(most: int, **counts: float | None) -> None:
    for name, value in counts.items():
        if value is not None and value > most:
            raise RecordError(f"{name} must be at most {most}, not {value}")


class _AsJson:
    """A record that is a line of its own."""

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values."""
        return cast(dict[str, Any], to_jsonable_python(self))


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
        if not self.classes:
            raise RecordError(f"task {self.task} has no classes")
        counts = {"task_correct": self.task_correct, "class_correct": self.class_correct}
        _check_at_most(self.images, **counts)


@record_class
class ClassScore:
    """How the test images of one class were classified.

    Args:
        label: The class.
        images: Its test images.
        class_correct: As in ``TaskScore``.
        task_correct: Images classified correctly among a task's classes, averaged over the tasks
            met that contain the class: a number between 0 and ``images``.
        mistaken: The labels that its other images were given among all classes seen, each with
            their number: a row of the confusion matrix. ``None`` where that is not recorded.
    """

    label: Label
    images: Positive
    class_correct: Count | None
    task_correct: NotNegative
    mistaken: tuple[tuple[Label, Positive], ...] | None = None

    def __post_init__(self) -> None:
        counts = {"class_correct": self.class_correct, "task_correct": self.task_correct}
        _check_at_most(self.images, **counts)
        if self.mistaken is None:
            return
        answers = dict(self.mistaken)
        if len(answers) < len(self.mistaken) or self.label in answers:
            raise RecordError(f"mistaken names a label twice, or {self.label} itself")
        if self.class_correct is None or self.class_correct + sum(answers.values()) != self.images:
            raise RecordError(f"class_correct and mistaken do not add up to {self.images}")


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
        if self.of_images < self.images:
            raise RecordError(f"of_images must be at least {self.images}, not {self.of_images}")
        if self.task not in {score.task for score in self.tasks}:
            raise RecordError(f"the current task {self.task} has no score")
        if self.images != sum(score.images for score in self.classes):
            raise RecordError(f"the classes' images do not add up to {self.images}")
        scores: tuple[TaskScore | ClassScore, ...] = (*self.tasks, *self.classes)
        if len({score.class_correct is None for score in scores}) > 1:
            raise RecordError("class_correct must be null everywhere or nowhere")

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain JSON values, without confusions that are not recorded."""
        content = super().to_json()
        for score in content["classes"]:
            if score["mistaken"] is None:
                del score["mistaken"]
        return content


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
        names = ("correct_before", "correct_after", "correct_stale")
        _check_at_most(self.images, **{name: getattr(self, name) for name in names})

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


Record: TypeAlias = Evaluation | Training | Shift  # one line of records.jsonl
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="type")])


def record_from_json(data: object) -> Record:
    """Rebuild a record of any type from what ``to_json`` returned, or from its line as bytes."""
    try:
        return (
            _RECORD.validate_json(data)
            if isinstance(data, bytes)
            else _RECORD.validate_python(data)
        )
    except ValidationError as error:
        raise _record_error(error) from None


def record_line(record: Record) -> bytes:
    """Return the record as a line of ``records.jsonl``, without the line's end."""
    return json.dumps(record.to_json(), allow_nan=False, separators=(",", ":")).encode()
