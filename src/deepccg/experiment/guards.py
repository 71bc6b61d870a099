"""Ctrl-C and SIGTERM end a run between two steps, with everything saved."""

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from deepccg.core import Diverged, State, StepInfo
from deepccg.experiment.config import RunConfig
from deepccg.streams import Cursor

if TYPE_CHECKING:
    from deepccg.experiment.writer import Journal
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Use ``count`` torch threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


USUAL = 0.1  # step size; whoever takes a thousand times that much need not divide by ten


def check_step(step: int, info: StepInfo) -> None:
    """Refuse to go on after a step that tells of anything but numbers."""
    for name, value in {"loss": info.loss, **info.extra}.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value} at step {step}: try a smaller lr")


def check_state(step: int, state: State) -> None:
    """Refuse to keep a state that holds anything but numbers."""
    if bad := state.not_finite():
        raise Diverged(f"{bad[0]} is not finite after step {step}: try a smaller lr")


@contextlib.contextmanager
def divergence_explained(config: RunConfig, journal: "Journal", cursor: Cursor) -> Iterator[None]:
    """Meanwhile, ``Diverged`` also says when, what is left and what may help."""
    try:
        yield
    except Diverged as error:
        lr = config.method.fields.get("lr")
        advice = ""
        if isinstance(lr, float):
            advice = f", such as --set method.lr={min(lr / 10, USUAL):g}"
        left = f"the checkpoint of step {journal.saved}" if journal.saved else "no checkpoint yet"
        step = f"after step {cursor.position} " if "step" not in str(error) else ""
        raise Diverged(f"{step}{error}{advice}; {journal.directory} holds {left}") from error


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
