"""The values that flow: a stream hands out batches, a learner hands back what it did."""

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from deepccg.core.errors import InputError


@dataclass(frozen=True)
class Task:
    """What an example of this task can be: its classes, by label.

    Args:
        id: Names the task. A learner that needs boundaries sees the id change.
        classes: Labels an example of the task can have.
        batches: How many batches the task has, where that is known.

    >>> Task(id=0, classes=(3, 7))
    Task(id=0, classes=(3, 7), batches=None)
    """

    id: int
    classes: tuple[int, ...]
    batches: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "id", _integers("a task's id", [self.id])[0])
        object.__setattr__(self, "classes", _integers("a task's classes", self.classes))
        if not self.classes:
            raise InputError(f"task {self.id} has no classes: name at least one")
        if min(self.classes) < 0:
            raise InputError(f"task {self.id} has the class {min(self.classes)}: labels are 0 up")
        if len(set(self.classes)) != len(self.classes):
            raise InputError(f"task {self.id} names a class twice: {self.classes}")


@dataclass(frozen=True)
class Batch:
    """One online step's data.

    Args:
        x: ``[B, ...]``: uint8 images ``[B, C, H, W]`` or float vectors ``[B, F]``.
        y: ``[B]`` int64 labels, 0 or more, in no order and with any gaps.
        task: Where the examples come from; ``None`` means one open task of all classes seen.
        tasks: Each example's own task, where tasks are pooled; ``task`` is ``None`` then.
    """

    x: Tensor
    y: Tensor
    task: Task | None = None
    tasks: tuple[Task, ...] | None = None

    def __post_init__(self) -> None:
        check_examples(self.x, "a batch's x")
        _check_labels(self.y)
        if self.x.ndim < 2 or self.y.ndim != 1 or len(self.x) != len(self.y):
            raise InputError(
                f"a batch needs x of shape [B, ...] and y of shape [B]; "
                f"got {list(self.x.shape)} and {list(self.y.shape)}"
            )
        if len(self.y) == 0:
            raise InputError("a batch needs at least one example")
        if int(self.y.min()) < 0:
            raise InputError(f"a batch's y has the label {int(self.y.min())}: labels are 0 up")
        if self.tasks is not None and (self.task is not None or len(self.tasks) != len(self.y)):
            raise InputError("a pooled batch needs one task per example, and no task of its own")

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class TestSet:
    """Held-out images and the tasks they are scored under.

    The images of a task are those whose label is one of its classes; with overlapping tasks one
    image belongs to several and is scored under each task's mask.

    Args:
        x: ``[N, ...]`` images.
        y: ``[N]`` labels.
        tasks: The stream's tasks, in order of arrival.
        domains: How each task shows the images, where tasks differ in that: a function of
            ``[B, ...]`` images for each task. Every task then has all images of its own.
    """

    __test__: ClassVar[bool] = False  # not a test case, whatever pytest reads into the name

    x: Tensor
    y: Tensor
    tasks: tuple[Task, ...]
    domains: tuple[Callable[[Tensor], Tensor], ...] = ()

    def __len__(self) -> int:
        """How many images there are, counted once for each domain."""
        return len(self.y) * max(1, len(self.domains))

    def parts(self, met: int) -> "list[TestSet]":
        """The images of the first ``met`` tasks: one part, or one for each domain."""
        if not self.domains:
            return [replace(self, tasks=self.tasks[:met])]
        own = zip(self.tasks[:met], self.domains[:met], strict=True)
        return [replace(self, tasks=(task,), domains=(domain,)) for task, domain in own]

    def images(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """These images of a part, as its domain shows them."""
        return self.domains[0](self.x[rows]) if self.domains else self.x[rows]


@dataclass(frozen=True)
class StepInfo:
    """What one step reports; nothing here is needed by the next step.

    Args:
        loss: The loss that was stepped on; 0 if the step had no term.
        replayed: How many stored examples were replayed.
        extra: Further scalars, by name.
    """

    loss: float
    replayed: int = 0
    extra: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class MemoryUsage:
    """What a learner keeps of the past beyond its network and head.

    Args:
        examples: How many examples.
        bytes: Bytes by kind: ``examples`` with their labels, ``logits``, ``network copy``, ...

    >>> MemoryUsage(2, {"examples": 6144, "logits": 80}).total
    6224
    """

    examples: int = 0
    bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """All bytes."""
        return sum(self.bytes.values())


@dataclass(frozen=True)
class State:
    """A saved part: tensors, and everything else as plain JSON values."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]

    def not_finite(self) -> list[str]:
        """Names of the tensors that hold NaN or infinity."""
        floats = {k: v for k, v in self.tensors.items() if v.is_floating_point()}
        return [name for name, value in floats.items() if not bool(torch.isfinite(value).all())]


def check_examples(x: object, what: str) -> None:
    """Reject anything but a tensor of bytes or floating numbers."""
    if not isinstance(x, Tensor):
        raise InputError(
            f"{what} must be a torch tensor, not {type(x).__name__}: use torch.as_tensor"
        )
    if x.dtype != torch.uint8 and not x.is_floating_point():
        raise InputError(
            f"{what} must be uint8 (0 to 255) or floating numbers, not {x.dtype}: convert it"
        )


def _check_labels(y: object) -> None:
    if not isinstance(y, Tensor):
        raise InputError(
            f"a batch's y must be a torch tensor of labels, not {type(y).__name__}; "
            f"deepccg.from_arrays numbers labels that are names"
        )
    if y.dtype != torch.int64:
        raise InputError(f"a batch's y must hold int64 labels, not {y.dtype}: number the classes")


def _integers(what: str, values: Iterable[Any]) -> tuple[int, ...]:
    """Plain integers; those of NumPy and PyTorch count as such."""
    try:
        return tuple(operator.index(value) for value in values)
    except TypeError:
        raise InputError(f"{what} must be integers, not {values!r}: number the classes") from None
