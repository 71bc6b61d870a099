"""The Ray engine: runs as tasks of an existing cluster.

Ray places the runs and reports when one of its processes dies; which run is tried again, and from
where, is decided as on a single machine. Ray itself retries nothing.
"""

import contextlib
import logging
import os
import re
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any, Self

from deepccg.core import InputError

try:
    import ray
    from ray.exceptions import RayError, RayTaskError, TaskCancelledError
except ImportError:
    raise InputError("the engine ray needs Ray: pip install 'deepccg[ray]'") from None

from deepccg.records import RecordError, RunDirectory, open_regular
from deepccg.sweep.engine import Event, Finished, Progressed, Started
from deepccg.sweep.job import JobResult, JobSpec, execute
from deepccg.sweep.upload import Upload

PROGRESS_SECONDS = 1.0  # between two reports of a run's progress
REPLY_SECONDS = 30.0  # after which an actor that does not reply is taken to be gone
PASSED_ON = ("DEEPCCG_", "MLFLOW_", "WANDB_", "AWS_", "FSSPEC_")  # variables that runs need, too


class RayEngine:
    """Executes jobs on a cluster, such as ``10.0.0.1:6379``; by default the one of this machine.

    Finished runs are uploaded by the machine that did them.
    """

    def __init__(self, address: str | None = None, upload: Upload | None = None) -> None:
        self._address = address or "auto"
        self._upload = upload
        self._tasks: dict[Any, JobSpec] = {}  # those that have not ended
        self._started: set[str] = set()
        self._events: deque[Event] = deque()
        self._polled = 0.0
        # Ray reports dead workers on standard output, which is for results.
        self._output = contextlib.redirect_stdout(sys.stderr)

    def __enter__(self) -> Self:
        try:
            ray.init(
                address=self._address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                namespace="deepccg",
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"cannot reach a Ray cluster at {self._address}: {reason}") from None
        # Ray adds `remote` to an actor's methods at run time: no type describes it.
        self._actor: Any = ray.remote(num_cpus=0)(ProgressActor).remote()
        self._output.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        for task in self._tasks:
            ray.cancel(task, force=True)
        ray.shutdown()
        self._output.__exit__(*error)

    def submit(self, spec: JobSpec) -> None:
        """As ``Engine.submit``."""
        threads = spec.config["threads"]
        remote = ray.remote(_execute).options(num_cpus=threads, max_retries=0, name=spec.name)
        environment = {key: v for key, v in os.environ.items() if key.startswith(PASSED_ON)}
        self._tasks[remote.remote(spec, environment, self._actor, self._upload)] = spec

    def next_event(self, seconds: float) -> Event | None:
        """As ``Engine.next_event``."""
        if not self._events:
            self._poll(seconds)
        return self._events.popleft() if self._events else None

    def stop(self) -> None:
        """As ``Engine.stop``: a cancelled task gets Ctrl-C.

        During a run's setup a library that catches everything may swallow it. So the actor also
        answers every run that reports its start or a step with the request to stop.
        """
        with contextlib.suppress(RayError):  # runs that learn get Ctrl-C anyway
            self._note(ray.get(self._actor.stop.remote(), timeout=REPLY_SECONDS))
        for task in self._tasks:
            ray.cancel(task, force=False)

    def _poll(self, seconds: float) -> None:
        """Wait for a task to end, and collect what has happened since the last call."""
        ended, _ = ray.wait(list(self._tasks), num_returns=1, timeout=seconds)
        if ended or time.monotonic() - self._polled > PROGRESS_SECONDS:
            self._polled = time.monotonic()
            with contextlib.suppress(RayError):  # without reports a sweep only looks idle
                self._note(ray.get(self._actor.take.remote()))
        for task in ended:
            spec = self._tasks.pop(task)
            self._start(spec.name)
            self._started.discard(spec.name)
            self._events.append(Finished(spec.name, _result(task, Path(spec.directory))))

    def _note(self, reports: list[tuple[str, int, int]]) -> None:
        running = {spec.name for spec in self._tasks.values()}
        for name, step, steps in reports:
            if name in running:  # else it has ended since
                self._start(name)
                if steps:
                    self._events.append(Progressed(name, step, steps))

    def _start(self, name: str) -> None:
        if name not in self._started:
            self._started.add(name)
            self._events.append(Started(name))


class ProgressActor:
    """A Ray actor that keeps the last report of each run, and whether all should stop."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}
        self._stopping = False

    def report(self, name: str, step: int, steps: int) -> bool:
        """Note that a run is at ``step``, 0 of 0 when it starts; returns whether it should stop."""
        self._last[name] = step, steps
        return self._stopping

    def stop(self) -> list[tuple[str, int, int]]:
        """Ask every run to stop at its next report; returns as ``take``."""
        self._stopping = True
        return self.take()

    def take(self) -> list[tuple[str, int, int]]:
        """Return the reports since the last call."""
        last, self._last = self._last, {}
        return [(name, *progress) for name, progress in last.items()]


class ProgressChannel:
    """A task's connection to the sweep: progress goes out, the request to stop comes back.

    A run waits for the ``ProgressActor`` only before it starts. If that does not reply it goes on.
    """

    def __init__(self, name: str, actor: Any) -> None:
        self._name, self._actor = name, actor
        self._stopping = False
        self._sent = time.monotonic()
        self._reply: Any = actor.report.remote(name, 0, 0)
        self._receive(REPLY_SECONDS)

    def send(self, step: int, steps: int) -> None:
        """Report a step, unless another was reported just now."""
        if time.monotonic() - self._sent > PROGRESS_SECONDS:
            self._sent = time.monotonic()
            self._reply = self._actor.report.remote(self._name, step, steps)

    def should_stop(self) -> bool:
        """Whether a reply that has arrived by now asked to stop."""
        self._receive(0)
        return self._stopping

    def _receive(self, seconds: float) -> None:
        if self._reply is not None and ray.wait([self._reply], timeout=seconds)[0]:
            with contextlib.suppress(RayError):  # the actor is gone
                self._stopping |= ray.get(self._reply)
            self._reply = None


def _execute(
    spec: JobSpec, environment: dict[str, str], actor: Any, upload: Upload | None
) -> JobResult:
    """Execute a job on whatever machine this is; runs as a Ray task."""
    os.environ.update(environment)
    channel = ProgressChannel(spec.name, actor)
    result = execute(spec, channel.send, channel.should_stop)
    return result if upload is None else upload.after(result, Path(spec.directory))


def _result(task: Any, directory: Path) -> JobResult:
    """Return a task's result, or how it died."""
    try:
        result: JobResult = ray.get(task)
    except TaskCancelledError:
        return JobResult("stopped", "stopped", retryable=True)
    except RayTaskError as error:
        trace = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()  # Ray colours it
        log_path = RunDirectory(directory).log_path
        with (
            contextlib.suppress(OSError, RecordError),
            open_regular(log_path, append=True) as log,
        ):
            log.write(f"{trace}\n".encode())
        return JobResult("failed", trace.splitlines()[-1], retryable=True)
    except RayError as error:
        return JobResult("failed", " ".join(str(error).split()), retryable=True)
    return result
