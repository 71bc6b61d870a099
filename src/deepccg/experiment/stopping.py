"""Ctrl-C and SIGTERM end a run between two steps, with everything saved."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_Handler = Callable[[int, FrameType | None], Any] | signal.Handlers
_DEFAULTS: dict[signal.Signals, _Handler] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Interrupted(KeyboardInterrupt):
    """A run was asked to stop, and did after saving a checkpoint.

    Args:
        directory: The run's.
        step: The steps it has done.
        steps: The steps it has to do.
        signal: Who asked: ``SIGINT`` or ``SIGTERM``.
    """

    def __init__(self, directory: Path, step: int, steps: int, signal: signal.Signals) -> None:
        super().__init__(f"{directory} was stopped and saved at step {step} of {steps}")
        self.directory = directory
        self.step = step
        self.steps = steps
        self.signal = signal


class StopRequest:
    """Whether somebody asked for the end, and by which signal."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None


_listening: list[StopRequest] = []


def ask_to_stop() -> None:
    """Have the run that is learning in this process end after its step, as by Ctrl-C.

    To ask again changes nothing, and before a run learns nobody is asked. A Ctrl-C that comes while
    a run is set up may be lost in a library that catches everything; whoever must be heard asks
    again at every step.
    """
    for request in _listening:
        request.signal = request.signal or signal.SIGINT


@contextlib.contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Meanwhile the first Ctrl-C or SIGTERM is only noted; the second acts as it always does.

    Signals reach the main thread alone, so elsewhere nothing is noted. A handler that is not
    Python's own (a user's, or none as under ``nohup``) stays in charge.
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
    _listening.append(request)
    try:
        yield request
    finally:
        _listening.remove(request)
        restore()
