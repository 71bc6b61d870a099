"""Learners to which something happens; workers import this file by its name."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

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


class Deaf(Slower):
    """Loses the Ctrl-C that comes while it is made, as in a library that catches everything."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        heard = Path(os.environ["DEEPCCG_ODD_LEARNERS"]) / "is-made"
        if not heard.exists():
            with contextlib.suppress(KeyboardInterrupt):
                heard.touch()
                until = time.monotonic() + 60
                while time.monotonic() < until:
                    time.sleep(0.01)  # an interrupt waits for the end of it


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
