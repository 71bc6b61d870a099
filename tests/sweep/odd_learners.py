"""Learners to which something happens; workers import this file by its name."""

import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from deepccg.core import Batch, StepInfo
from deepccg.methods import ER


class Slow(ER):
    """Takes long enough to be stopped in between."""

    def learn(self, batch: Batch) -> StepInfo:
        time.sleep(0.02)
        return super().learn(batch)


class Slower(ER):
    """The same, where a stop has to travel through a cluster on a busy machine first."""

    def learn(self, batch: Batch) -> StepInfo:
        time.sleep(0.2)
        return super().learn(batch)


class Odd(ER):
    """Something happens in the seventh step that this process does."""

    steps_here = 0

    def learn(self, batch: Batch) -> StepInfo:
        self.steps_here += 1
        if self.steps_here == 7:
            self.happen()
        return super().learn(batch)

    def happen(self) -> None:
        """What it is."""


class KilledOnce(Odd):
    """Its process is killed, as by a system that ran out of memory, if nothing says it was."""

    def happen(self) -> None:
        was = Path(os.environ["DEEPCCG_ODD_LEARNERS"]) / "was-killed"
        if not was.exists():
            was.touch()
            os.kill(os.getpid(), signal.SIGKILL)


class Segfaults(Odd):
    """Reads where there is nothing to read."""

    def happen(self) -> None:
        ctypes.string_at(0)


class Raises(Odd):
    """Has an ordinary bug, and talks."""

    def happen(self) -> None:
        sys.stdout.write("about to divide\n")
        raise ZeroDivisionError("by nothing")
