"""The Ray engine: runs as tasks of an existing cluster.

Ray places the runs and tells when one of its processes dies; which run is tried again, and from
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
from types import TracebackType
from typing import Any, Self

try:
    import ray
    from ray.exceptions import RayError, RayTaskError, TaskCancelledError
except ImportError:
    from deepccg.core import InputError

    raise InputError("the engine ray needs Ray: pip install 'deepccg[ray]'") from None

from deepccg.core import InputError
from deepccg.records import RunDirectory
from deepccg.sweep.engine import Began, Ended, Event, Moved
from deepccg.sweep.job import Answer, Order, execute
from deepccg.sweep.upload import Upload

TELL_SECONDS = 1.0  # between two reports of a run's progress
ANSWER_SECONDS = 30.0  # until an actor that does not answer is taken to be gone


class Reports:
    """An actor: the last that each run told, and whether all should stop."""

    def __init__(self) -> None:
        self._last: dict[int, tuple[int, int]] = {}
        self._stopping = False

    def tell(self, number: int, step: int, steps: int) -> bool:
        """A run is at ``step``; 0 of 0 when it begins. Returns whether it should stop."""
        self._last[number] = step, steps
        return self._stopping

    def stop(self) -> list[tuple[int, int, int]]:
        """From now on whoever tells something is told to stop; returns as ``take``."""
        self._stopping = True
        return self.take()

    def take(self) -> list[tuple[int, int, int]]:
        """What was told since this was last asked."""
        last, self._last = self._last, {}
        return [(number, *progress) for number, progress in last.items()]


class Line:
    """A task's line to the sweep: its progress goes out, the request to stop comes back.

    A run never waits for the other end, except before it begins. If nobody answers it goes on.

    Args:
        number: The run's.
        reports: The actor at the other end.
    """

    def __init__(self, number: int, reports: Any) -> None:
        self._number, self._reports = number, reports
        self._stopping = False
        self._told = time.monotonic()
        self._reply: Any = reports.tell.remote(number, 0, 0)
        self._listen(ANSWER_SECONDS)

    def tell(self, step: int, steps: int) -> None:
        """The run did a step; told unless that was done just now."""
        if time.monotonic() - self._told > TELL_SECONDS:
            self._told = time.monotonic()
            self._reply = self._reports.tell.remote(self._number, step, steps)

    def stopping(self) -> bool:
        """Whether a reply that has come by now said so."""
        self._listen(0)
        return self._stopping

    def _listen(self, seconds: float) -> None:
        if self._reply is not None and ray.wait([self._reply], timeout=seconds)[0]:
            with contextlib.suppress(RayError):  # the actor is gone
                self._stopping |= ray.get(self._reply)
            self._reply = None


# Settings of this process that a run on another machine needs, too.
PASSED_ON = ("DEEPCCG_", "MLFLOW_", "WANDB_", "AWS_", "FSSPEC_")


class RayEngine:
    """Runs on a cluster.

    Args:
        address: Of the cluster, for example ``10.0.0.1:6379``; by default the one of this machine.
        upload: Where finished runs are copied to, by the machine that did them.
    """

    def __init__(self, address: str | None = None, upload: Upload | None = None) -> None:
        self._address = address or "auto"
        self._upload = upload
        self._numbers: dict[Any, int] = {}  # of tasks that have not ended
        self._orders: dict[int, Order] = {}
        self._begun: set[int] = set()
        self._events: deque[Event] = deque()
        self._asked = 0.0
        # Ray tells of dead workers on standard output, which is for results.
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
        # An actor's methods get their `remote` when the program runs: nothing a type can tell.
        self._reports: Any = ray.remote(num_cpus=0)(Reports).remote()
        self._output.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._numbers:
            ray.cancel(task, force=True)
        ray.shutdown()
        self._output.__exit__(kind, error, trace)

    def submit(self, number: int, order: Order) -> None:
        """As ``Engine.submit``."""
        task = ray.remote(_do).options(
            num_cpus=order.config["threads"], max_retries=0, name=Path(order.directory).parent.name
        )
        surroundings = {key: v for key, v in os.environ.items() if key.startswith(PASSED_ON)}
        sent = task.remote(number, order, surroundings, self._reports, self._upload)
        self._numbers[sent] = number
        self._orders[number] = order

    def next_event(self, seconds: float) -> Event | None:
        """As ``Engine.next_event``."""
        if not self._events:
            self._listen(seconds)
        return self._events.popleft() if self._events else None

    def stop(self) -> None:
        """As ``Engine.stop``: a task that is cancelled hears Ctrl-C.

        While it is set up it may lose that in a library that catches everything. Hence the reports:
        whichever run tells that it begins, or has done a step, is told to stop.
        """
        with contextlib.suppress(RayError):  # whoever learns hears Ctrl-C
            for report in ray.get(self._reports.stop.remote(), timeout=ANSWER_SECONDS):
                self._report(*report)
        for task in self._numbers:
            ray.cancel(task, force=False)

    def _listen(self, seconds: float) -> None:
        ended, _ = ray.wait(list(self._numbers), num_returns=1, timeout=seconds)
        if ended or time.monotonic() - self._asked > TELL_SECONDS:
            self._asked = time.monotonic()
            with contextlib.suppress(RayError):  # without reports a sweep only looks idle
                for report in ray.get(self._reports.take.remote()):
                    self._report(*report)
        for task in ended:
            number = self._numbers.pop(task)
            self._begin(number)
            self._begun.discard(number)
            self._events.append(Ended(number, _answer(task, Path(self._orders[number].directory))))

    def _report(self, number: int, step: int, steps: int) -> None:
        if number in self._numbers.values():  # else it has ended since
            self._begin(number)
            if steps:
                self._events.append(Moved(number, step, steps))

    def _begin(self, number: int) -> None:
        if number not in self._begun:
            self._begun.add(number)
            self._events.append(Began(number))


def _do(
    number: int, order: Order, surroundings: dict[str, str], reports: Any, upload: Upload | None
) -> Answer:
    """A task: do one run, on whatever machine this is."""
    os.environ.update(surroundings)
    line = Line(number, reports)
    answer = execute(order, line.tell, line.stopping)
    return answer if upload is None else upload.after(answer, Path(order.directory))


def _answer(task: Any, directory: Path) -> Answer:
    """What a task returned, or how it died."""
    try:
        answer: Answer = ray.get(task)
    except TaskCancelledError:
        return Answer("stopped", "stopped", again=True)
    except RayTaskError as error:
        told = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()  # it comes in colours
        with contextlib.suppress(OSError), RunDirectory(directory).log_path.open("a") as log:
            log.write(f"{told}\n")
        return Answer("failed", told.splitlines()[-1], again=True)
    except RayError as error:
        return Answer("failed", " ".join(str(error).split()), again=True)
    return answer
