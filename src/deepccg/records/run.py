"""What every recorded run offers, whether it lies in a directory or is a line of an archive."""

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepccg.records.schema import Evaluation, Record, Shift
from deepccg.records.timing import Timing, timings_from_json

PARTS = ("environment", "audit", "timing")  # of which a run has a JSON file each


class RecordedRun(ABC):
    """The results of one run. Nothing is checked until it is asked for.

    Args:
        path: Where the run is: its directory, or its archive followed by its name there.
    """

    path: Path

    @abstractmethod
    def config(self) -> dict[str, Any]:
        """The run's configuration as plain values."""

    @abstractmethod
    def records(self) -> list[Record]:
        """All records so far; none if the run has not written any."""

    @abstractmethod
    def part(self, name: str) -> dict[str, Any] | None:
        """The content of one of ``PARTS``, unchecked; ``None`` if the run has none."""

    @property
    @abstractmethod
    def recency(self) -> tuple[int, int]:
        """Orders runs by when their records were written, the newest last."""

    def evaluations(self) -> list[Evaluation]:
        """The evaluations so far, in order."""
        return [record for record in self.records() if isinstance(record, Evaluation)]

    def shifts(self) -> list[Shift]:
        """What each batch after the first task did to that task's test images, where recorded."""
        return [record for record in self.records() if isinstance(record, Shift)]

    def audit(self) -> dict[str, Any] | None:
        """How the run kept to its protocol; ``None`` if that is not recorded."""
        return self.part("audit")

    def environment(self) -> dict[str, Any] | None:
        """What it ran on; ``None`` if that is not recorded."""
        return self.part("environment")

    def timing(self) -> Timing | None:
        """How long the steps up to the last checkpoint took; ``None`` if that is not known."""
        return next(iter(timings_from_json(self.part("timing"))), None)

    @property
    def finished(self) -> bool:
        """Whether the run reached the end of its stream and was scored there."""
        return any(evaluation.final for evaluation in self.evaluations())


def precedence(path: str | os.PathLike[str], config: Mapping[str, Any]) -> tuple[bool, Path]:
    """Sort key of runs of one experiment and seed: the first of them counts, the others do not.

    A run that also followed the representation shift comes after one that did not: its times and
    passes are not those of the experiment alone. Otherwise the first path counts, because a run
    has neither a date nor an order of commits.

    Args:
        path: The run's directory, or its place in an archive.
        config: What was run, as recorded.

    >>> plain, followed = {"evaluation": {}}, {"evaluation": {"shift_images": 100}}
    >>> precedence("b", plain) < precedence("c", plain) < precedence("a", followed)
    True
    """
    evaluation = config.get("evaluation")
    followed = isinstance(evaluation, Mapping) and evaluation.get("shift_images") is not None
    return followed, Path(path)
