"""Run many jobs: skip finished ones, continue interrupted ones, retry failed ones."""

import os
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from deepccg.core import InputError
from deepccg.experiment import is_finished, stop_requests
from deepccg.experiment.writer import CheckpointSchedule
from deepccg.records import RunDirectory
from deepccg.sweep.engine import Engine, Finished, LocalEngine, Progressed, Started
from deepccg.sweep.grid import Grid, load_grid
from deepccg.sweep.job import Job, JobResult, JobSpec, Outcome, SweepStopped
from deepccg.sweep.progress import SweepProgress
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
    """Do all jobs, several at a time; returns the outcome of each, in the order given.

    A run that fails does not affect the others. It is tried again from its last checkpoint, unless
    it would fail the same way again (bad input, divergence). Ctrl-C and SIGTERM make every run save
    and raise ``SweepStopped``; the same call continues. A second Ctrl-C stops at once.

    Args:
        jobs: What to run; the same job twice is run once.
        out: Where run directories go: ``NAME/seed-N`` below it, as with ``deepccg run``.
        data_dir: The directory of named data sets.
        workers: Processes at a time; default one for each processor. Ignored by a cluster.
        engine: ``local`` or ``ray``.
        address: Of the Ray cluster; default the one that Ray finds.
        retries: How often a run that failed is tried again.
        upload: A URL to which finished runs are copied.
        track: As in ``run``.
        checkpoint_every: As in ``run``.
        progress: Show bars on a terminal, log lines elsewhere, on standard error.
    """
    jobs, out = list(jobs), Path(out)
    data_dir = None if data_dir is None else Path(data_dir)
    check_options(engine, workers, retries)
    CheckpointSchedule(checkpoint_every)  # raises if it is invalid
    if track is not None:
        prepare_tracker(track)
    unique = {job.name: job for job in jobs}
    uploader = None if upload is None else Upload(upload, out)
    # A tracker may lack a finished run: then a worker reads it back.
    outcomes = {} if track else _finished_before(unique, out, uploader)
    todo = {name: job for name, job in unique.items() if name not in outcomes}
    if todo:
        options = {"checkpoint_every": checkpoint_every, "track": track}
        specs = {name: JobSpec.from_job(j, out, data_dir, **options) for name, j in todo.items()}
        workers = min(workers or processors(), len(todo))
        shown = SweepProgress(len(todo), len(outcomes), Console(stderr=True, quiet=not progress))
        with shown.bars, build_engine(engine, workers, address, uploader) as running:
            loop = SweepLoop(todo, specs, running, shown, retries, out)
            outcomes |= loop.run(list(outcomes.values()))
    return [outcomes[job.name] for job in jobs]


def sweep(grid: Grid | str | Path, **options: Any) -> list[Outcome]:
    """Do all runs of a grid, or of a grid file; options as in ``run_jobs``.

    >>> from deepccg.sweep import Grid, sweep
    >>> sweep(Grid(methods=["er", "sgd"], seeds=[0, 1, 2]), out="runs")  # doctest: +SKIP
    """
    grid = grid if isinstance(grid, Grid) else load_grid(grid)
    return run_jobs(grid.jobs(), **options)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


@dataclass
class SweepLoop:
    """The event loop of a sweep: submits every job, retries failed ones, collects outcomes."""

    jobs: Mapping[str, Job]
    specs: Mapping[str, JobSpec]
    engine: Engine
    progress: SweepProgress
    retries: int
    out: Path

    def __post_init__(self) -> None:
        self._attempts: Counter[str] = Counter()
        self._running: set[str] = set()
        self._outcomes: dict[str, Outcome] = {}

    def run(self, before: list[Outcome]) -> dict[str, Outcome]:
        """Return every job's outcome by name; ``before`` is only added to ``SweepStopped``."""
        for spec in self.specs.values():
            self.engine.submit(spec)
        with stop_requests() as stop:
            while len(self._outcomes) < len(self.specs):
                self._handle_event(stopping=False)
                if stop.signal is not None:
                    self._stop()
                    outcomes = [*before, *self._outcomes.values()]
                    left = len(self.specs) - len(self._outcomes)
                    raise SweepStopped(outcomes, left, stop.signal)
        return self._outcomes

    def _stop(self) -> None:
        """Wait until every run in progress has saved."""
        self.progress.stopping()
        self.engine.stop()
        while self._handle_event(stopping=True) or self._running:
            pass  # a run may have started without its event having been handled yet

    def _handle_event(self, *, stopping: bool) -> bool:
        """Wait briefly for an event; returns whether there was one."""
        match self.engine.next_event(POLL_SECONDS):
            case Started(name):
                self._running.add(name)
                self._attempts[name] += 1
                self.progress.started(name)
            case Progressed(name, step, steps):
                self.progress.progressed(name, step, steps)
            case Finished(name, result):
                self._running.discard(name)
                self._finish(name, result, stopping)
            case None:
                return False
        return True

    def _finish(self, name: str, result: JobResult, stopping: bool) -> None:
        """Submit a job again, or note its outcome; neither if it is left for the next sweep."""
        attempts = self._attempts[name]
        retryable = result.retryable and attempts <= self.retries
        if retryable and not stopping:
            self.engine.submit(self.specs[name])
        elif not retryable and not (stopping and result.status == "stopped"):
            status = "failed" if result.status == "stopped" else result.status
            where = self.out / name
            self._outcomes[name] = Outcome(
                self.jobs[name], where, status, result.error, attempts, result.unrelated
            )
        self.progress.finished(name, result, retry=retryable and not stopping)


def _finished_before(jobs: dict[str, Job], out: Path, upload: Upload | None) -> dict[str, Outcome]:
    """Return the jobs that need no run; one that could not be uploaded is left for a worker."""
    outcomes = {}
    for name, job in jobs.items():
        directory, done = out / name, JobResult("already")
        finished = is_finished(job.config, RunDirectory(directory))
        if finished and (upload is None or upload.after(done, directory) == done):
            outcomes[name] = Outcome(job, directory, "already")
    return outcomes


def check_options(engine: str, workers: int | None, retries: int) -> None:
    """Refuse options that no engine has."""
    if engine not in ENGINES:
        raise InputError(f"engine should be {' or '.join(ENGINES)}; got {engine!r}")
    if workers is not None and workers < 1:
        raise InputError(f"there should be at least 1 worker; got {workers}")
    if retries < 0:
        raise InputError(f"retries should be at least 0; got {retries}")


def build_engine(engine: str, workers: int, address: str | None, upload: Upload | None) -> Engine:
    """Return the engine of that name."""
    if engine == "ray":
        from deepccg.sweep.ray_engine import RayEngine

        return RayEngine(address, upload)
    if address is not None:
        raise InputError("address is for the engine ray")
    return LocalEngine(workers, upload)
