"""Guards around the steps of a run: torch threads, divergence checks, requests to stop."""

import contextlib
import math
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from deepccg.core import Diverged, State, StepInfo
from deepccg.deprecation import warn_renamed

_Handler = Callable[[int, FrameType | None], Any] | signal.Handlers
_DEFAULTS: dict[signal.Signals, _Handler] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use ``count`` torch threads inside the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_step(step: int, info: StepInfo) -> None:
    """Raise ``Diverged`` if a step reports a number that is not finite."""
    for name, value in {"loss": info.loss, **info.extra}.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value} at step {step}: try a smaller lr")


def check_state(step: int, state: State) -> None:
    """Raise ``Diverged`` if a state holds a number that is not finite."""
    if bad := state.not_finite():
        raise Diverged(f"{bad[0]} is not finite after step {step}: try a smaller lr")


class Interrupted(KeyboardInterrupt):
    """A run was stopped by ``SIGINT`` or ``SIGTERM``, after it had saved a checkpoint."""

    def __init__(self, directory: Path, step: int, steps: int, signal: signal.Signals) -> None:
        super().__init__(f"{directory} was stopped and saved at step {step} of {steps}")
        self.directory, self.signal = directory, signal
        self.step, self.steps = step, steps


class StopRequest:
    """The signal that asked a run to stop, if there was one."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None


_active: list[StopRequest] = []


def request_stop() -> None:
    """Make the run that is learning in this process end after its step, as Ctrl-C does.

    A second request changes nothing, and before a run learns there is none to stop. A Ctrl-C that
    comes while a run is set up may be lost in a library that catches everything: a caller whose
    request must not be lost repeats it at every step.
    """
    for request in _active:
        request.signal = request.signal or signal.SIGINT


def ask_to_stop() -> None:
    """Old name of ``request_stop``."""
    warn_renamed("ask_to_stop", "request_stop")
    request_stop()


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Inside the block the first Ctrl-C or SIGTERM is only noted; the second acts as usual.

    Signals reach the main thread alone, so in other threads nothing is noted. A handler that is
    not Python's own (a user's, or none as under ``nohup``) stays in charge.
    """
    request = StopRequest()
    ours = []
    if threading.current_thread() is threading.main_thread():
        ours = [each for each, usual in _DEFAULTS.items() if signal.getsignal(each) == usual]

    def restore() -> None:
        for each in ours:
            signal.signal(each, _DEFAULTS[each])

    def note(number: int, _frame: FrameType | None) -> None:
        request.signal = signal.Signals(number)
        restore()

    for each in ours:
        signal.signal(each, note)
    _active.append(request)
    try:
        yield request
    finally:
        _active.remove(request)
        restore()
