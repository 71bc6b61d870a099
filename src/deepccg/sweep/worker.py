"""A process that does one job after the other: ``python -m deepccg.sweep.worker``.

Orders come on standard input, answers and progress go to standard output, one JSON object a line.
When the input ends, be it that the parent closed it or that it was killed, the run in progress is
saved and the process leaves: nothing is orphaned.
"""

import _thread
import contextlib
import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from deepccg.records import RunDirectory
from deepccg.sweep.job import Order, execute

TELL_SECONDS = 0.2  # between two reports of progress
GRACE_SECONDS = 60.0  # for the step in progress and a checkpoint


class Telling:
    """Writes to the parent; progress only now and then."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._told = 0.0

    def __call__(self, **said: Any) -> None:
        """Say something. A parent that is gone hears nothing, and the input has ended as well."""
        with contextlib.suppress(BrokenPipeError):
            self._file.write(json.dumps(said) + "\n")
            self._file.flush()

    def progress(self, step: int, steps: int) -> None:
        """Say how far the run is, unless that was said just now."""
        if time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            self(step=step, steps=steps)


def main() -> None:
    """Do what is ordered until there is no more."""
    # Were they ignored where this was started, nothing could be stopped and saved.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What libraries print belongs into the log of the run, not among the answers.
    tell = Telling(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    _point_output_at(os.devnull)
    faulthandler.enable()
    orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
    leaving = threading.Event()
    threading.Thread(target=_listen, args=(orders, leaving), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while (order := orders.get()) is not None:
            with _logged(Path(order.directory)):
                answer = execute(order, tell.progress, leaving.is_set)
            tell(**asdict(answer))


def _listen(orders: "queue.SimpleQueue[Order | None]", leaving: threading.Event) -> None:
    """Pass orders on; at the end of the input have the main thread stop and save."""
    for line in sys.stdin:
        if line.endswith("\n"):  # else the parent was killed while it wrote
            orders.put(Order(**json.loads(line)))
    leaving.set()  # for a run that loses the interrupt while it is set up
    orders.put(None)
    _thread.interrupt_main(signal.SIGINT)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def _logged(directory: Path) -> Iterator[None]:
    """Meanwhile output goes to a file in the run directory, which is removed if it stays empty.

    An error that nobody expected ends this process, and its traceback is printed there, too.
    """
    log = RunDirectory(directory).log_path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _point_output_at(log)
    except OSError:  # the run itself will say what is wrong with the directory
        yield
        return
    yield
    _point_output_at(os.devnull)
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()


def _point_output_at(path: str | Path) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)


if __name__ == "__main__":
    main()
