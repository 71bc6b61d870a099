"""What the report shows of one run, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deepccg.records import Evaluation, RecordedRun, RecordError, Shift, Training


@dataclass(frozen=True)
class Run:
    """One run."""

    path: Path  # its directory, as the user named it, or its place in an archive
    config: Mapping[str, Any]  # what was run
    evaluations: tuple[Evaluation, ...]  # in order of time; at least one if it is finished
    shifts: tuple[Shift, ...] = ()  # of the first task's test images, where that was recorded
    audit: Mapping[str, Any] | None = None  # the content of ``audit.json``
    environment: Mapping[str, Any] | None = None  # the content of ``environment.json``
    seconds: float | None = None  # of learning, without scoring, where that was recorded
    training: tuple[Training, ...] = ()  # losses of some steps, in order of time
    running: bool = False  # whether a process was writing it when it was read
    resume: str = ""  # the command that continues it, of a run that is not finished
    changes: Mapping[str, Any] = field(default_factory=dict)  # from its preset, by dotted names
    # Whether method, network and reading are those of one of the package's presets: only then the
    # paper's number stands beside it. The records alone do not say.
    as_preset: bool = False
    others: tuple[Path, ...] = ()  # runs of the same configuration and seed, which do not count

    @property
    def seed(self) -> int:
        """Which of several runs of the same configuration it is."""
        seed = self.config.get("seed", 0)
        return seed if isinstance(seed, int) else 0

    @property
    def finished(self) -> bool:
        """Whether it reached the end of its stream and was scored there."""
        return any(evaluation.final for evaluation in self.evaluations)

    @property
    def step(self) -> int:
        """How many batches it has learned, as far as that is recorded."""
        steps = [record.step for record in self.evaluations]
        return max((*steps, *(record.step for record in self.training)), default=0)

    @property
    def steps(self) -> int | None:
        """How many batches there are; ``None`` if an earlier version began the run."""
        steps = (self.environment or {}).get("steps")
        return steps if isinstance(steps, int) and steps > 0 else None


def read_run(recorded: RecordedRun) -> Run | None:
    """Return a recorded run with all its values; ``None`` if it is not finished.

    Raises:
        RecordError: If it is damaged.
    """
    run = read_any_run(recorded)
    return run if run.finished else None


def read_any_run(recorded: RecordedRun) -> Run:
    """As ``read_run``, of a run that may not be finished: what it has recorded so far."""
    config = recorded.config()
    for table in ("stream", "method", "evaluation"):
        if not isinstance(config.get(table), dict):
            raise RecordError(f"{recorded.path}: its configuration has no table {table!r}")
    running = recorded.running  # asked first: what ends meanwhile is then complete
    records = recorded.records()
    evaluations = tuple(record for record in records if isinstance(record, Evaluation))
    timing = recorded.timing()
    whole = timing is not None and evaluations and timing.steps == evaluations[-1].step
    return Run(
        path=recorded.path,
        config=config,
        evaluations=evaluations,
        shifts=tuple(record for record in records if isinstance(record, Shift)),
        audit=recorded.audit(),
        environment=recorded.environment(),
        seconds=timing.learning_seconds if timing is not None and whole else None,
        training=tuple(record for record in records if isinstance(record, Training)),
        running=running,
    )
