"""How a batch moved the embeddings of the first task's test images, and what it did to them.

``records.jsonl`` holds one object of type ``shift`` for each batch after the first task, if
``evaluation.shift_images`` asks for them. Like all records they hold counts, not rates.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from deepccg.records.checks import count, fields_of, finite, require

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
