"""A process that executes one job after the other: ``python -m deepccg.sweep.worker``.

Jobs come on standard input, results and progress go to standard output, one JSON object a line.
When the input ends, because the parent closed it or was killed, the run in progress is saved and
the process exits: nothing is orphaned.
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

from deepccg.records import RecordError, RunDirectory, open_regular
from deepccg.sweep.job import GRACE_SECONDS, JobSpec, execute

PROGRESS_SECONDS = 0.5  # between two reports of progress


def main() -> None:
    """Execute jobs until the input ends."""
    # Had the parent process ignored these signals, no run could be stopped and saved.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What libraries print belongs in the log of the run, not among the results.
    writer = MessageWriter(os.fdopen(os.dup(1), "w", encoding="utf-8"))
    _discard_output()
    faulthandler.enable()
    specs: queue.SimpleQueue[JobSpec | None] = queue.SimpleQueue()
    stopping = threading.Event()
    threading.Thread(target=_read_jobs, args=(specs, stopping), daemon=True).start()
    with contextlib.suppress(KeyboardInterrupt):
        while (spec := specs.get()) is not None:
            with _log_output(Path(spec.directory)):
                result = execute(spec, writer.progress, stopping.is_set)
            writer.send(**asdict(result))


class MessageWriter:
    """Sends messages to the parent process."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._reported = 0.0

    def send(self, **message: Any) -> None:
        """Write a message; if the parent is gone, so is the input, and the process will exit."""
        with contextlib.suppress(BrokenPipeError):
            self._file.write(json.dumps(message) + "\n")
            self._file.flush()

    def progress(self, step: int, steps: int) -> None:
        """Report a step, unless another was reported just now."""
        if time.monotonic() - self._reported > PROGRESS_SECONDS:
            self._reported = time.monotonic()
            self.send(step=step, steps=steps)


def _read_jobs(specs: "queue.SimpleQueue[JobSpec | None]", stopping: threading.Event) -> None:
    """Pass jobs on; when the input ends, make the main thread stop and save."""
    for line in sys.stdin:
        if line.endswith("\n"):  # else the parent was killed while it wrote
            specs.put(JobSpec(**json.loads(line)))
    stopping.set()  # for a run that loses the interrupt during its setup
    specs.put(None)
    _thread.interrupt_main(signal.SIGINT)
    time.sleep(GRACE_SECONDS)
    os._exit(1)


@contextlib.contextmanager
def _log_output(directory: Path) -> Iterator[None]:
    """Redirect output to a file in the run directory, and remove the file if it stays empty.

    An unexpected error ends this process, and its traceback is printed to the same file.
    """
    log = RunDirectory(directory).log_path
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with open_regular(log, append=True) as file:
            _redirect_output(file.fileno())
    except (OSError, RecordError):  # the run itself will report what is wrong with the directory
        yield
        return
    yield
    _discard_output()
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()


def _discard_output() -> None:
    with Path(os.devnull).open("wb") as nothing:
        _redirect_output(nothing.fileno())


def _redirect_output(descriptor: int) -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    for standard in (1, 2):
        os.dup2(descriptor, standard)


if __name__ == "__main__":
    main()
