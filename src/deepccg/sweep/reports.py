"""What the runs of a cluster and their sweep have to say to each other."""

import contextlib
import time
from typing import Any

import ray
from ray.exceptions import RayError

TELL_SECONDS = 1.0  # between two reports of a run's progress
ANSWER_SECONDS = 30.0  # until an actor that does not answer is taken to be gone


class Reports:
    """An actor: the last that each run told, and whether all should stop."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        self._stopping = False

    def tell(self, number: int, step: int, steps: int) -> bool:
        """A run is at ``step``; 0 of 0 when it begins. Returns whether it should stop."""
        self._last[number] = step, steps
        return self._stopping

    def stop(self) -> list[tuple[int, int, int]]:
        """From now on whoever tells something is told to stop; returns as ``take``."""
        self._stopping = True
        return self.take()

    def take(self) -> list[tuple[int, int, int]]:
        """What was told since this was last asked."""
        last, self._last = self._last, {}
        return [(number, *progress) for number, progress in last.items()]


class Line:
    """A task's line to the sweep: its progress goes out, the request to stop comes back.

    A run never waits for the other end, except before it begins. If nobody answers it goes on.

    Args:
        number: The run's.
        reports: The actor at the other end.
    """

    def __init__(self, number: int, reports: Any) -> None:
        self._number, self._reports = number, reports
        self._stopping = False
        self._told = time.monotonic()
        self._reply: Any = reports.tell.remote(number, 0, 0)
        self._listen(ANSWER_SECONDS)

    def tell(self, step: int, steps: int) -> None:
        """The run did a step; told unless that was done just now."""
        if time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            self._reply = self._reports.tell.remote(self._number, step, steps)

    def stopping(self) -> bool:
        """Whether a reply that has come by now said so."""
        self._listen(0)
        return self._stopping

    def _listen(self, seconds: float) -> None:
        if self._reply is not None and ray.wait([self._reply], timeout=seconds)[0]:
            with contextlib.suppress(RayError):  # the actor is gone
                self._stopping |= ray.get(self._reply)
            self._reply = None
