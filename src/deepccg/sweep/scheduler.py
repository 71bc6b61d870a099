"""Doing many runs: finished ones are left alone, begun ones continued, failed ones tried again."""

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from deepccg.core import InputError
from deepccg.experiment import is_finished, stop_requests
from deepccg.experiment.writer import CheckpointSchedule
from deepccg.records import RunDirectory
from deepccg.sweep.engine import Began, Ended, Engine, LocalEngine, Moved
from deepccg.sweep.grid import Grid, load_grid
from deepccg.sweep.job import Answer, Job, Order, Outcome, SweepStopped, order_for
from deepccg.sweep.progress import Board, shown_board
from deepccg.sweep.upload import Upload
from deepccg.tracking import prepare_tracker

ENGINES = ("local", "ray")
POLL_SECONDS = 0.2  # how long a signal may go unnoticed


def run_jobs(
    jobs: Iterable[Job],
    *,
    out: str | Path = "runs",
    data_dir: str | Path | None = None,
    workers: int | None = None,
    engine: str = "local",
    address: str | None = None,
    retries: int = 1,
    upload: str | None = None,
    track: str | None = None,
    checkpoint_every: int | str | None = None,
    progress: bool = True,
) -> list[Outcome]:
    """Do all of them, several at a time, and tell what came of each, in the order given.

    A run that fails leaves the others alone. It is tried again from its last checkpoint, unless
    the reason is one that stays (bad input, divergence). Ctrl-C and SIGTERM have every run save
    and raise ``SweepStopped``; the same call again goes on. A second Ctrl-C stops at once.

    Args:
        jobs: What to run; the same job twice is run once.
        out: Where run directories go: ``NAME/seed-N`` below it, as with ``deepccg run``.
        data_dir: Where named data sets lie.
        workers: Processes at a time; default one for each processor. A cluster decides by itself.
        engine: ``local`` or ``ray``.
        address: Of the Ray cluster; default the one that Ray finds.
        retries: How often a run that failed is tried again.
        upload: A URL to which finished runs are copied.
        track: As in ``run``.
        checkpoint_every: As in ``run``.
        progress: Show a live table on a terminal, else lines, on standard error.
    """
    jobs, out = list(jobs), Path(out)
    data_dir = None if data_dir is None else Path(data_dir)
    _check(engine, workers, retries)
    CheckpointSchedule(checkpoint_every)  # which refuses what it does not understand
    if track is not None:
        prepare_tracker(track)
    unique = {job.name: job for job in jobs}
    where = None if upload is None else Upload(upload, out)
    # A tracker may lack a finished run: then its worker reads it back.
    outcomes = {} if track else _already(unique, out, where)
    todo = [job for name, job in unique.items() if name not in outcomes]
    if todo:
        orders = [order_for(job, out / job.name, data_dir, checkpoint_every, track) for job in todo]
        workers = min(workers or processors(), len(todo))
        with (
            shown_board(len(todo), len(outcomes), shown=progress) as board,
            _started(engine, workers, address, where) as running,
        ):
            loop = Sweep(todo, orders, running, board, retries, out)
            outcomes |= loop.run(list(outcomes.values()))
    return [outcomes[job.name] for job in jobs]


def sweep(grid: Grid | str | Path, **options: Any) -> list[Outcome]:
    """Do all runs of a grid, or of a file of one; options as in ``run_jobs``.

    >>> from deepccg.sweep import Grid, sweep
    >>> sweep(Grid(methods=["er", "sgd"], seeds=[0, 1, 2]), out="runs")  # doctest: +SKIP
    """
    grid = grid if isinstance(grid, Grid) else load_grid(grid)
    return run_jobs(grid.jobs(), **options)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class Sweep:
    """The loop: hear what happens, try again what failed, until nothing is left."""

    def __init__(
        self,
        todo: list[Job],
        orders: list[Order],
        engine: Engine,
        board: Board,
        retries: int,
        out: Path,
    ) -> None:
        self._todo = todo
        self._orders = orders
        self._engine = engine
        self._board = board
        self._retries = retries
        self._out = out
        self._attempts = [0] * len(todo)
        self._running: set[int] = set()
        self._outcomes: dict[str, Outcome] = {}

    def run(self, before: list[Outcome]) -> dict[str, Outcome]:
        """What came of every job, by name; ``before`` is only for who stops the sweep."""
        for number, order in enumerate(self._orders):
            self._engine.submit(number, order)
        with stop_requests() as stop:
            while len(self._outcomes) < len(self._todo):
                self._hear(trying_again=True)
                if stop.signal is not None:
                    self._stop()
                    outcomes = [*before, *self._outcomes.values()]
                    left = len(self._todo) - len(self._outcomes)
                    raise SweepStopped(outcomes, left, stop.signal)
        return self._outcomes

    def _stop(self) -> None:
        """Wait until every run that was going on has saved."""
        self._board.stopping()
        self._engine.stop()
        while self._hear(trying_again=False) or self._running:
            pass  # what has begun may not have been heard of

    def _hear(self, *, trying_again: bool) -> bool:
        """Wait a little for something to happen; returns whether it did."""
        event = self._engine.next_event(POLL_SECONDS)
        if event is None:
            return False
        name = self._todo[event.number].name
        match event:
            case Began(number):
                self._running.add(number)
                self._attempts[number] += 1
                self._board.began(name)
            case Moved(_, step, steps):
                self._board.moved(name, step, steps)
            case Ended(number, answer):
                self._running.discard(number)
                again = answer.again and self._attempts[number] <= self._retries
                if again and trying_again:
                    self._engine.submit(number, self._orders[number])
                elif not again and (answer.status != "stopped" or trying_again):
                    self._end(number, answer)
                self._board.ended(name, answer, again=again and trying_again)
        return True

    def _end(self, number: int, answer: Answer) -> None:
        job, attempts = self._todo[number], self._attempts[number]
        status = "failed" if answer.status == "stopped" else answer.status
        self._outcomes[job.name] = Outcome(
            job, self._out / job.name, status, answer.error, attempts
        )


def _already(jobs: dict[str, Job], out: Path, upload: Upload | None) -> dict[str, Outcome]:
    """The jobs that need no run; what could not be uploaded of them is left for a worker."""
    outcomes = {}
    for name, job in jobs.items():
        directory, answer = out / name, Answer("already")
        if is_finished(job.config, RunDirectory(directory)):
            answer = answer if upload is None else upload.after(answer, directory)
            if answer.status == "already":
                outcomes[name] = Outcome(job, directory, "already")
    return outcomes


def _check(engine: str, workers: int | None, retries: int) -> None:
    if engine not in ENGINES:
        raise InputError(f"engine should be {' or '.join(ENGINES)}; got {engine!r}")
    if workers is not None and workers < 1:
        raise InputError(f"there should be at least 1 worker; got {workers}")
    if retries < 0:
        raise InputError(f"retries should be at least 0; got {retries}")


def _started(engine: str, workers: int, address: str | None, upload: Upload | None) -> Engine:
    if engine == "ray":
        from deepccg.sweep.ray_engine import RayEngine

        return RayEngine(address, upload)
    if address is not None:
        raise InputError("address is for the engine ray")
    return LocalEngine(workers, upload)
