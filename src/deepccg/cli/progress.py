"""Running for a command: how far it is, and what to type to continue after an interruption."""

import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from deepccg.cli.options import check_data_dir

if TYPE_CHECKING:
    from deepccg.core import StepInfo
    from deepccg.experiment import RunConfig, RunResult
    from deepccg.sweep import Job, Outcome

_KEPT = 0.95  # share of the loss shown before in the one shown next


def run_with_progress(
    call: "Callable[..., RunResult]",
    config: "RunConfig",
    directory: Path,
    data_dir: Path | None,
    **options: Any,
) -> "RunResult":
    """Call with the options and a progress bar; Ctrl-C and SIGTERM exit with how to continue."""
    from deepccg.experiment import Interrupted

    try:
        shown = RunProgress(f"{config.method.name}, seed {config.seed}", Console(stderr=True))
        with shown.bars:
            return call(data_dir=data_dir, progress=shown, **options)
    except Interrupted as stop:
        message = f"Stopped and saved at step {stop.step:,} of {stop.steps:,}."
        exit_interrupted(message + _resume_hint(config, directory, data_dir), stop.signal)
    except KeyboardInterrupt:
        exit_interrupted("Stopped." + _resume_hint(config, directory, data_dir), signal.SIGINT)


def run_all(jobs: "list[Job]", *, data_dir: Path | None, **options: Any) -> "list[Outcome]":
    """As ``run_jobs``, but Ctrl-C and SIGTERM exit with how to continue."""
    from deepccg.sweep import SweepStopped, run_jobs

    check_data_dir(data_dir)
    try:
        return run_jobs(jobs, data_dir=data_dir, **options)
    except SweepStopped as stop:
        message = f"Stopped and saved; runs to do: {stop.left} of {len(jobs)}."
        exit_interrupted(f"{message} The same command continues.", stop.signal)
    except KeyboardInterrupt:
        exit_interrupted("Stopped at once. The same command continues.", signal.SIGINT)


def exit_interrupted(message: str, number: int) -> NoReturn:
    """Exit as the signal of that number would have, with a message."""
    typer.echo(message, err=True)
    raise typer.Exit(128 + number)


def print_failures(outcomes: "list[Outcome]") -> int:
    """Print the runs that failed, one line for each reason; returns how many there are."""
    reasons: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.status == "failed":
            reasons.setdefault(outcome.error or "it ended", []).append(outcome.job.name)
    for reason, names in reasons.items():
        which = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        typer.secho(f"{which}: {reason}", fg=typer.colors.RED, err=True)
    return sum(map(len, reasons.values()))


def _resume_hint(config: "RunConfig", directory: Path, data_dir: Path | None) -> str:
    from deepccg.experiment import folder_of, resume_command
    from deepccg.records import RunDirectory

    if not RunDirectory(directory).config_path.exists():
        return ""
    command = resume_command(directory, data_dir or folder_of(config.dataset), config.method.name)
    return f" To continue: {command} (or the same command again)"


class RunProgress:
    """Shows how far a run is, while its ``bars`` are entered; to be given to ``run``.

    A terminal gets a bar, anything else a line every few seconds, as a sweep prints them.
    """

    def __init__(self, label: str, console: Console) -> None:
        from deepccg.sweep.progress import LogLines

        self._lines = None if console.is_terminal else LogLines(console)
        self._loss: float | None = None
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[detail]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=self._lines is not None,
        )
        self._task = self.bars.add_task(label, total=None, detail="batches")

    def begin(self, step: int, steps: int) -> None:
        """Before the first step here: where the run begins, and how many steps it has."""
        self.bars.update(self._task, completed=step, total=steps)

    def __call__(self, step: int, steps: int, info: "StepInfo") -> None:
        """After a step."""
        before = info.loss if self._loss is None else self._loss
        self._loss = _KEPT * before + (1 - _KEPT) * info.loss
        detail = f"batches, loss {self._loss:.3f}"
        self.bars.update(self._task, completed=step, total=steps, detail=detail)
        if self._lines is not None and self._lines.due():
            (task,) = self.bars.tasks
            left = task.time_remaining
            time_left = f", {timedelta(seconds=left)} left" if left else ""
            self._lines.print(f"{task.description}: {step:,} of {steps:,} {detail}{time_left}")
