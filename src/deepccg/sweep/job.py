"""What a sweep is made of: jobs, and what came of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from deepccg.core import InputError
from deepccg.experiment import RunConfig

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
