"""What an engine is: something that takes orders and tells what becomes of them."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self, TypeAlias, cast

from deepccg.records import RunDirectory
from deepccg.sweep.job import NOT_BEGUN, Answer, Order, Told
from deepccg.sweep.upload import Upload


@dataclass(frozen=True)
class Began:
    """An attempt began."""

    number: int


@dataclass(frozen=True)
class Moved:
    """A run got on."""

    number: int
    step: int
    steps: int


@dataclass(frozen=True)
class Ended:
    """An attempt ended."""

    number: int
    answer: Answer


Event: TypeAlias = Began | Moved | Ended


class Engine(Protocol):
    """Does orders somewhere. Leaving its context ends everything at once."""

    def submit(self, number: int, order: Order) -> None:
        """Have an order done when there is room; the number will name it."""

    def next_event(self, seconds: float) -> Event | None:
        """What happened; ``None`` if nothing did for that long."""

    def stop(self) -> None:
        """Have all runs save and end: each that has begun still tells its ``Ended``."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


LONGEST_TAIL = 4096  # bytes of a log that are searched for its last line


class LocalEngine:
    """A pool of processes. One that dies takes only its run along, and is replaced.

    Args:
        workers: How many at a time.
        upload: Where finished runs are copied to.
    """

    def __init__(self, workers: int, upload: Upload | None = None) -> None:
        self._upload = upload
        self._orders: queue.SimpleQueue[tuple[int, Order] | None] = queue.SimpleQueue()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._workers: dict[int, Worker] = {}
        self._threads = [
            threading.Thread(target=self._supervise, args=(place,), daemon=True)
            for place in range(workers)
        ]

    def submit(self, number: int, order: Order) -> None:
        """As ``Engine.submit``."""
        self._orders.put((number, order))

    def next_event(self, seconds: float) -> Event | None:
        """As ``Engine.next_event``."""
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=seconds)
        return None

    def stop(self) -> None:
        """As ``Engine.stop``."""
        self._stopping.set()
        for worker in list(self._workers.values()):
            worker.leave()

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._stopping.set()
            for worker in list(self._workers.values()):
                worker.kill()
        for _ in self._threads:
            self._orders.put(None)
        for thread in self._threads:
            thread.join()

    def _supervise(self, place: int) -> None:
        """A thread: keep one worker busy, and replace it when it dies."""
        while (taken := self._orders.get()) is not None and not self._stopping.is_set():
            number, order = taken
            self._events.put(Began(number))
            if place not in self._workers or self._workers[place].gone:
                self._workers[place] = Worker()
            worker = self._workers[place]
            if self._stopping.is_set():  # said before the worker was known
                worker.leave()
            answer = worker.do(order, self._moved(number))
            if self._upload is not None:
                answer = self._upload.after(answer, Path(order.directory))
            self._events.put(Ended(number, answer))
        if place in self._workers:
            self._workers[place].leave()
            self._workers[place].wait()

    def _moved(self, number: int) -> Told:
        return lambda step, steps: self._events.put(Moved(number, step, steps))


class Worker:
    """A process that runs ``deepccg.sweep.worker``, and finds the modules that this one finds."""

    def __init__(self) -> None:
        # -P: the modules of the working directory are not found unless they are here.
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "deepccg.sweep.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | one | {"PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the parent, which has each run saved
        )
        self._input = cast(IO[str], self._process.stdin)
        self._output = cast(IO[str], self._process.stdout)

    def do(self, order: Order, tell: Told) -> Answer:
        """Send an order and listen until it is done or the process is gone."""
        with contextlib.suppress(OSError, ValueError):  # it is gone, or was told to go
            self._input.write(json.dumps(order.to_json()) + "\n")
            self._input.flush()
        for line in self._output:
            said = json.loads(line)
            if "status" in said:
                return Answer(**said)
            tell(said["step"], said["steps"])
        status = self.wait()
        if status == 0:  # told to go before it began
            return NOT_BEGUN
        return Answer("failed", _death(status, Path(order.directory)), again=True)

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def leave(self) -> None:
        """Have it save the run in progress and end: it does so when its input ends."""
        with contextlib.suppress(OSError):
            self._input.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def wait(self) -> int:
        """Its exit status, when it has ended."""
        return self._process.wait()


def _death(status: int, directory: Path) -> str:
    """Why a process is gone: the signal that ended it, or what it printed last."""
    if status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    lines: list[str] = []
    with contextlib.suppress(OSError), RunDirectory(directory).log_path.open("rb") as log:
        log.seek(max(0, log.seek(0, os.SEEK_END) - LONGEST_TAIL))
        lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"its process ended with exit status {status}"
