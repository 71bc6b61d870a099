"""Engines execute job specs somewhere and report events; the local one is a pool of processes."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path
from typing import IO, NamedTuple, Protocol, Self, TypeAlias, cast

from deepccg.records import RecordError, RunDirectory, open_regular
from deepccg.sweep.job import NOT_STARTED, JobResult, JobSpec
from deepccg.sweep.upload import Upload

LOG_TAIL_BYTES = 4096  # searched for the last line of a log
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class Started(NamedTuple):
    """An attempt at a job started."""

    name: str


class Progressed(NamedTuple):
    """A run did a step."""

    name: str
    step: int
    steps: int


class Finished(NamedTuple):
    """An attempt at a job ended, well or not."""

    name: str
    result: JobResult


Event: TypeAlias = Started | Progressed | Finished


class Engine(AbstractContextManager["Engine"], Protocol):
    """Executes jobs. Leaving its context by an error ends all of them at once."""

    def submit(self, spec: JobSpec) -> None:
        """Execute a job when there is room."""

    def next_event(self, seconds: float) -> Event | None:
        """Return the next event; ``None`` if there is none for that long."""

    def stop(self) -> None:
        """Make all runs save and end: each that has started still reports ``Finished``."""


class LocalEngine:
    """A pool of worker processes. One that dies fails only its own run, and is replaced."""

    def __init__(self, workers: int, upload: Upload | None = None) -> None:
        self._upload = upload
        self._specs: queue.SimpleQueue[JobSpec | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._workers: dict[int, Worker] = {}
        self._threads = [
            threading.Thread(target=self._supervise, args=(slot,), daemon=True)
            for slot in range(workers)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._stopping.set()
            for worker in list(self._workers.values()):
                worker.process.kill()
        for _thread in self._threads:
            self._specs.put(None)
        for thread in self._threads:
            thread.join()

    def submit(self, spec: JobSpec) -> None:
        """As ``Engine.submit``."""
        self._specs.put(spec)

    def next_event(self, seconds: float) -> Event | None:
        """As ``Engine.next_event``."""
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=seconds)
        return None

    def stop(self) -> None:
        """As ``Engine.stop``."""
        self._stopping.set()
        for worker in list(self._workers.values()):
            worker.stop()

    def _supervise(self, slot: int) -> None:
        """Keep one worker busy, and replace it when it dies; runs in a thread."""
        while (spec := self._specs.get()) is not None and not self._stopping.is_set():
            self._events.put(Started(spec.name))
            if slot not in self._workers or self._workers[slot].process.poll() is not None:
                self._workers[slot] = Worker()
            worker = self._workers[slot]
            if self._stopping.is_set():  # stop() may not have seen this worker
                worker.stop()
            result = worker.execute(spec, self._events)
            if self._upload is not None:
                result = self._upload.after(result, Path(spec.directory))
            self._events.put(Finished(spec.name, result))
        if slot in self._workers:
            self._workers[slot].stop()
            self._workers[slot].process.wait()


class Worker:
    """A process that runs ``deepccg.sweep.worker``, and finds the modules that this one finds."""

    def __init__(self) -> None:
        # -P: modules of the working directory are not found unless this process finds them.
        path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deepccg.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | ONE_THREAD | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the parent, which makes each run save
        )
        self._input = cast(IO[str], self.process.stdin)
        self._output = cast(IO[str], self.process.stdout)

    def execute(self, spec: JobSpec, events: "queue.SimpleQueue[Event]") -> JobResult:
        """Send a job, and pass its progress on until it has a result or the process has exited."""
        with contextlib.suppress(OSError, ValueError):  # it has exited, or was asked to stop
            self._input.write(json.dumps(asdict(spec)) + "\n")
            self._input.flush()
        for line in self._output:
            message = json.loads(line)
            if "status" in message:
                return JobResult(**message)
            events.put(Progressed(spec.name, **message))
        status = self.process.wait()
        if status == 0:  # stopped before the job started
            return NOT_STARTED
        return JobResult("failed", _exit_reason(status, Path(spec.directory)), retryable=True)

    def stop(self) -> None:
        """Make it save the run in progress and exit, which it does when its input ends."""
        with contextlib.suppress(OSError):
            self._input.close()


def _exit_reason(status: int, directory: Path) -> str:
    """Return the signal that ended a process, or the last line it printed."""
    if status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    lines: list[str] = []
    log_path = RunDirectory(directory).log_path
    with contextlib.suppress(OSError, RecordError), open_regular(log_path) as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL_BYTES))
        lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its process ended with exit status {status}"
