"""What a sweep is made of: jobs, and what came of them."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from deepccg.core import DeepCCGError, InputError, StepInfo
from deepccg.experiment import Interrupted, RunConfig, folder_of, request_stop, run, validated
from deepccg.records import RecordError
from deepccg.streams import load_dataset

Status: TypeAlias = Literal["finished", "already", "failed"]


@dataclass(frozen=True)
class Job:
    """One run to be done.

    Args:
        config: A complete configuration, as ``deepccg.experiment.resolve`` gives it.
        seed: Takes the place of the configuration's.
    """

    config: RunConfig
    seed: int

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InputError(f"seed should be at least 0; got {self.seed}")
        object.__setattr__(self, "config", self.config.model_copy(update={"seed": self.seed}))

    @property
    def name(self) -> str:
        """The run's place below the directory of all runs: the one that ``deepccg run`` takes."""
        return f"{self.config.name()}/seed-{self.seed}"


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Args:
        job: The job.
        directory: Its run directory.
        status: ``already`` if it was finished before.
        error: One line, if it failed.
        attempts: How often it was begun or continued.
    """

    job: Job
    directory: Path
    status: Status
    error: str | None = None
    attempts: int = 0


class SweepStopped(KeyboardInterrupt):
    """A sweep was asked to stop, and did after its runs had saved checkpoints.

    Args:
        outcomes: Of the jobs that had ended.
        left: How many had not.
        signal: The signal that asked.
    """

    def __init__(self, outcomes: list[Outcome], left: int, signal: int) -> None:
        super().__init__(f"stopped with {left} runs left")
        self.outcomes = outcomes
        self.left = left
        self.signal = signal


Told: TypeAlias = Callable[[int, int], None]  # step and steps
Asked: TypeAlias = Callable[[], bool]  # whether to stop


@dataclass(frozen=True)
class Order:
    """A job as it is sent to another process: plain values, no code.

    Args:
        config: The configuration, seed included.
        directory: Where the run goes.
        data_dir: Where the data lie.
        folder: The folder that is learned, if it is one: a worker may be somewhere else.
        checkpoint_every: As in ``run``.
        track: As in ``run``.
    """

    config: Mapping[str, Any]
    directory: str
    data_dir: str | None = None
    folder: str | None = None
    checkpoint_every: int | str | None = None
    track: str | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Answer:
    """How an attempt ended.

    Args:
        status: ``stopped`` if it was asked to stop, and saved.
        error: One line, if it failed.
        again: Whether another attempt may do better: not for bad input, which stays bad.
    """

    status: Literal["finished", "already", "failed", "stopped"]
    error: str | None = None
    again: bool = False


NOT_BEGUN = Answer("stopped", "stopped before its first step", again=True)


def order_for(
    job: Job,
    directory: Path,
    data_dir: Path | None,
    checkpoint_every: int | str | None = None,
    track: str | None = None,
) -> Order:
    """The order to do a job; its paths mean the same in every directory."""
    folder = folder_of(job.config.dataset)
    return Order(
        config=job.config.model_dump(mode="json"),
        directory=str(directory.absolute()),
        data_dir=None if data_dir is None else str(data_dir.absolute()),
        folder=None if folder is None else str(Path(folder).expanduser().absolute()),
        checkpoint_every=checkpoint_every,
        track=track,
    )


def execute(order: Order, tell: Told, stopping: Asked) -> Answer:
    """Do, continue or read back a run. What a user can act on is an answer, the rest is raised.

    Args:
        order: What to do.
        tell: Called after each step.
        stopping: Whether the run should stop and save, asked before it begins and after each step:
            a Ctrl-C that comes while the run is set up may be lost, this cannot.
    """
    if stopping():
        return NOT_BEGUN
    steps_done = 0

    def progress(step: int, steps: int, _info: StepInfo) -> None:
        nonlocal steps_done
        steps_done += 1
        if stopping():
            request_stop()
        tell(step, steps)

    try:
        config = validated(RunConfig, order.config)
        data = load_dataset(f"folder:{order.folder}") if order.folder else None
        run(
            config,
            order.directory,
            data=data,
            data_dir=order.data_dir,
            progress=progress,
            checkpoint_every=order.checkpoint_every,
            track=order.track,
        )
    except Interrupted as stop:
        return Answer("stopped", f"stopped by {stop.signal.name} at step {stop.step}", again=True)
    except KeyboardInterrupt:
        return NOT_BEGUN
    except (DeepCCGError, RecordError) as error:
        return Answer("failed", str(error))
    return Answer("finished" if steps_done else "already")
