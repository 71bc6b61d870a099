"""What a tracker has to do, and what it is told of a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deepccg.tracking.points import Point


@dataclass(frozen=True)
class Described:
    """A run, as a tracker sees it.

    Args:
        identity: The same whenever the run is continued, and no other run's.
        title: What people call it.
        directory: Where it is on this machine.
        parameters: Its configuration, flat.
    """

    identity: str
    title: str
    directory: Path
    parameters: Mapping[str, Any]


class Store(Protocol):
    """One run in a tracker. Points that it has from before it does not take again."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What is raised when the tracker cannot be reached."""

    def send(self, points: Sequence[Point]) -> None:
        """Keep these points."""

    def close(self, *, finished: bool) -> None:
        """The run is finished, or was interrupted."""
