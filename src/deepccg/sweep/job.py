"""Jobs of a sweep: what to run, how it is sent to a worker, how one attempt is executed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deepccg.core import CannotWrite, DeepCCGError, InputError, InUse, StepInfo
from deepccg.experiment import Interrupted, RunConfig, folder_of, request_stop, run, validated
from deepccg.experiment.run import ProgressCallback
from deepccg.experiment.shard import Shard
from deepccg.records import RecordError, RunDirectory
from deepccg.streams import load_dataset

GRACE_SECONDS = 60.0  # in which a worker that was told to stop, or whose parent was killed, does so
WAIT_SECONDS = 0.5  # between two looks at a directory that is in use


@dataclass(frozen=True)
class Job:
    """A run to do: a complete configuration, as of ``resolve``, and the seed that replaces its."""

    config: RunConfig
    seed: int

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed should be at least 0; got {self.seed}")
        object.__setattr__(self, "config", self.config.model_copy(update={"seed": self.seed}))

    @property
    def name(self) -> str:
        """The run's directory below the directory of all runs, the same as for ``deepccg run``."""
        return f"{self.config.name()}/seed-{self.seed}"


@dataclass(frozen=True)
class Outcome:
    """The result of a job after all its attempts: how often it was started or continued.

    It is ``already`` if it was finished before. The error of one that failed is one line;
    ``unrelated`` if it says nothing about the run: a full disk, a directory in use.
    """

    job: Job
    directory: Path
    status: Literal["finished", "already", "failed"]
    error: str | None = None
    attempts: int = 0
    unrelated: bool = False


class SweepStopped(KeyboardInterrupt):
    """A sweep was asked to stop by a signal, and did so after its runs had saved checkpoints.

    It has the outcomes of the jobs that had finished or failed; ``left`` counts the others.
    """

    def __init__(self, outcomes: list[Outcome], left: int, signal: int) -> None:
        super().__init__(f"stopped with {left} runs left")
        self.outcomes, self.left, self.signal = outcomes, left, signal


@dataclass(frozen=True)
class JobSpec:
    """A job as it is sent to another process: plain JSON values, no code; options as in ``run``.

    If the data set is a folder, ``folder`` is its absolute path, because a worker may have another
    working directory. With ``shard``, only these steps are learned, of the run two levels above
    ``directory``.
    """

    name: str
    config: Mapping[str, Any]
    directory: str
    data_dir: str | None = None
    folder: str | None = None
    checkpoint_every: int | str | None = None
    track: str | None = None
    shard: Sequence[int] | None = None  # the first step, and the one after the last

    @classmethod
    def from_job(
        cls, job: Job, out: Path, data_dir: Path | None = None, **options: Any
    ) -> "JobSpec":
        """Describe a job whose run directory is below ``out``; all paths become absolute."""
        folder = folder_of(job.config.dataset)
        return cls(
            name=job.name,
            config=job.config.model_dump(mode="json"),
            directory=str((out / job.name).absolute()),
            data_dir=None if data_dir is None else str(data_dir.absolute()),
            folder=None if folder is None else str(Path(folder).expanduser().absolute()),
            **options,
        )


@dataclass(frozen=True)
class JobResult:
    """The result of one attempt: ``stopped`` if it was asked to, and saved; an error is one line.

    It is retryable if another attempt may succeed at once: not for bad input, which stays bad, and
    not after an error that is ``unrelated`` to the run, such as a full disk.
    """

    status: Literal["finished", "already", "failed", "stopped"]
    error: str | None = None
    retryable: bool = False
    unrelated: bool = False


NOT_STARTED = JobResult("stopped", "stopped before its first step", retryable=True)


def execute(
    spec: JobSpec, on_progress: Callable[[int, int], None], should_stop: Callable[[], bool]
) -> JobResult:
    """Run, continue or read back a job. Errors a user can act on are returned, others raised.

    ``on_progress`` is called after each step, with its number and that of the last;
    ``should_stop`` before the first and after each, because a Ctrl-C during setup may be lost.
    A directory in use is waited for: the worker of a killed sweep may be saving there.
    """
    began, wait = time.monotonic(), 0.0
    while not should_stop():
        try:
            time.sleep(wait)
            return _attempt(spec, on_progress, should_stop)
        except KeyboardInterrupt:
            return NOT_STARTED
        except InUse as error:
            if time.monotonic() - began > GRACE_SECONDS:
                return JobResult("failed", str(error), unrelated=True)
            wait = WAIT_SECONDS
        except CannotWrite as error:
            return JobResult("failed", str(error), unrelated=True)
        except (DeepCCGError, RecordError) as error:
            return JobResult("failed", str(error))
    return NOT_STARTED


def _attempt(
    spec: JobSpec, on_progress: Callable[[int, int], None], should_stop: Callable[[], bool]
) -> JobResult:
    steps_done = 0

    def progress(step: int, steps: int, _info: StepInfo) -> None:
        nonlocal steps_done
        steps_done += 1
        if should_stop():
            request_stop()
        on_progress(step, steps)

    try:
        _learn(spec, progress)
    except Interrupted as stop:
        reason = f"stopped by {stop.signal.name} at step {stop.step}"
        return JobResult("stopped", reason, retryable=True)
    return JobResult("finished" if steps_done else "already")


def _learn(spec: JobSpec, progress: ProgressCallback) -> None:
    """Do the run, or the shard of a run, from its last checkpoint on."""
    config = validated(RunConfig, spec.config)
    name = config.dataset if spec.folder is None else f"folder:{spec.folder}"
    data = load_dataset(name, data_dir=None if spec.folder else spec.data_dir)
    options: dict[str, Any] = {"progress": progress, "checkpoint_every": spec.checkpoint_every}
    if spec.shard is None:
        run(config, spec.directory, data=data, track=spec.track, **options)
        return
    first, stop = spec.shard
    shard = Shard(RunDirectory(Path(spec.directory).parents[1]), first, stop)
    shard.learn(config, data, **options)
