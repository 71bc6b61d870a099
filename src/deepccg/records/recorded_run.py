"""What every recorded run offers, whether it is a directory or a line of an archive.

``timing.json``, the one file that no two runs share, has a ``version`` and, up to the last
checkpoint, the number of ``steps``, the seconds spent learning (``learning_seconds``) and scoring
(``evaluation_seconds``). ``before`` has the same for earlier checkpoints: a run that continues from
one of them continues with its times, so that no step counts twice, however often it was repeated.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from deepccg.records.files import read_json_object
from deepccg.records.schema import Count, Evaluation, NotNegative, Record, Shift, record_class

PARTS = ("environment", "audit", "timing")  # of which a run has a JSON file each
_TIMING_VERSION = 1


@record_class
class Timing:
    """Wall time of the steps that count.

    Args:
        steps: How many they are, from the first.
        learning_seconds: Time spent in the learner.
        evaluation_seconds: Time spent scoring it and following the representation shift.
    """

    steps: Count
    learning_seconds: NotNegative
    evaluation_seconds: NotNegative


_TIMINGS: TypeAdapter[list[Timing]] = TypeAdapter(list[Timing])


def timings_text(timings: Sequence[Timing]) -> bytes:
    """Return the content of ``timing.json``; at least one timing, the newest first."""
    newest, *before = map(asdict, timings)
    content = {"version": _TIMING_VERSION, **newest, "before": before}
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def read_timings(path: str | os.PathLike[str]) -> list[Timing]:
    """Return the timings in the file, the newest first; none if it is missing or damaged."""
    return _timings(read_json_object(path))


def _timings(content: Mapping[str, Any] | None) -> list[Timing]:
    """Return the timings in the file's content. Nothing learned depends on them: damage is none."""
    if content is None or content.get("version") != _TIMING_VERSION:
        return []
    newest = {key: value for key, value in content.items() if key not in ("version", "before")}
    before = content.get("before")
    try:
        return _TIMINGS.validate_python([newest, *before] if isinstance(before, list) else None)
    except ValidationError:
        return []


class RecordedRun(ABC):
    """The results of one run. Nothing is checked until it is asked for."""

    path: Path  # its directory, or its archive followed by its name there

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """Return the run's configuration as plain values."""

    @abstractmethod
    def records(self) -> list[Record]:
        """Return all records so far; none if the run has not written any."""

    @abstractmethod
    def part(self, name: str) -> dict[str, Any] | None:
        """Return the content of one of ``PARTS``, unchecked; ``None`` if the run has none."""

    @property
    @abstractmethod
    def recency(self) -> tuple[int, int]:
        """Orders runs by when their records were written, the newest last."""

    def evaluations(self) -> list[Evaluation]:
        """Return the evaluations so far, in order."""
        return [record for record in self.records() if isinstance(record, Evaluation)]

    def shifts(self) -> list[Shift]:
        """Return what each batch after the first task did to its test images, where recorded."""
        return [record for record in self.records() if isinstance(record, Shift)]

    def audit(self) -> dict[str, Any] | None:
        """Return how the run kept to its protocol; ``None`` if that is not recorded."""
        return self.part("audit")

    def environment(self) -> dict[str, Any] | None:
        """Return what it ran on; ``None`` if that is not recorded."""
        return self.part("environment")

    def timing(self) -> Timing | None:
        """Return how long the steps up to the last checkpoint took; ``None`` if not known."""
        return next(iter(_timings(self.part("timing"))), None)

    @property
    def running(self) -> bool:
        """Whether a process is writing it now."""
        return False

    @property
    def finished(self) -> bool:
        """Whether the run reached the end of its stream and was scored there."""
        return any(evaluation.final for evaluation in self.evaluations())


def precedence(path: str | os.PathLike[str], config: Mapping[str, Any]) -> tuple[bool, Path]:
    """Sort key of runs of one experiment and seed: the first of them counts, the others do not.

    A run that also followed the representation shift comes after one that did not: its times and
    passes are not those of the experiment alone. Otherwise the first path counts, because a run
    has neither a date nor an order of commits.

    >>> plain, followed = {"evaluation": {}}, {"evaluation": {"shift_images": 100}}
    >>> precedence("b", plain) < precedence("c", plain) < precedence("a", followed)
    True
    """
    evaluation = config.get("evaluation")
    followed = isinstance(evaluation, Mapping) and evaluation.get("shift_images") is not None
    return followed, Path(path)
