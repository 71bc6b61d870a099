"""Learners that fail in different ways; workers import this file by its name."""

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from torch import nn

from deepccg.core import Batch, StepInfo
from deepccg.methods import CCG, ER


class Slow(ER):
    """Takes long enough to be stopped during a run."""

    def learn(self, batch: Batch) -> StepInfo:
        time.sleep(0.02)
        return super().learn(batch)


class Slower(ER):
    """Leaves a stop request time to reach it through a cluster on a busy machine."""

    def learn(self, batch: Batch) -> StepInfo:
        time.sleep(0.2)
        return super().learn(batch)


class Deaf(Slower):
    """Swallows a Ctrl-C during its construction, as a library that catches everything."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        mark = Path(os.environ["DEEPCCG_ODD_LEARNERS"]) / "is-made"
        if not mark.exists():
            with contextlib.suppress(KeyboardInterrupt):
                mark.touch()
                until = time.monotonic() + 60
                while time.monotonic() < until:
                    time.sleep(0.01)  # an interrupt is raised after it


class Odd(ER):
    """Fails in the seventh step that this process does."""

    steps_here = 0

    def learn(self, batch: Batch) -> StepInfo:
        self.steps_here += 1
        if self.steps_here == 7:
            self.fail()
        return super().learn(batch)

    def fail(self) -> None:
        """How it fails."""


class KilledOnce(Odd):
    """Its process is killed once, as by a system that ran out of memory."""

    def fail(self) -> None:
        kill_once()


def kill_once() -> None:
    """Kill this process, the first time any process calls it."""
    mark = Path(os.environ["DEEPCCG_ODD_LEARNERS"]) / "was-killed"
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Segfaults(Odd):
    """Reads from a null pointer."""

    def fail(self) -> None:
        ctypes.string_at(0)


class Raises(Odd):
    """Has an ordinary bug, and prints."""

    def fail(self) -> None:
        sys.stdout.write("about to divide\n")
        raise ZeroDivisionError("by nothing")


class DoubleCCG(CCG):
    """Computes in double precision, in which rounding cannot hide an example counted twice."""

    def __init__(self, network: nn.Module, *arguments: Any, **options: Any) -> None:
        super().__init__(network.double(), *arguments, **options)


class KilledOnceCCG(DoubleCCG):
    """The process of a shard is killed once; the first and last steps of a fit are too few."""

    steps_here = 0

    def learn(self, batch: Batch) -> StepInfo:
        self.steps_here += 1
        if self.steps_here == 7:
            kill_once()
        return super().learn(batch)


class SlowCCG(DoubleCCG):
    """Leaves a stop request time to reach it."""

    def learn(self, batch: Batch) -> StepInfo:
        time.sleep(0.1)
        return super().learn(batch)


class BrokenCCG(DoubleCCG):
    """Has a bug that the third task shows."""

    def learn(self, batch: Batch) -> StepInfo:
        if batch.task is not None and batch.task.id == 2:
            raise ZeroDivisionError("by nothing")
        return super().learn(batch)
