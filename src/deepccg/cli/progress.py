"""Doing one run for a command: a bar that moves, and a word on how to continue when stopped."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from deepccg.cli.options import check_data_dir

if TYPE_CHECKING:
    from deepccg.sweep import Job, Outcome
import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from deepccg.core import StepInfo
    from deepccg.experiment import RunConfig, RunResult


def run_all(
    jobs: "list[Job]",
    *,
    out: Path,
    data_dir: Path | None,
    workers: int | None,
    engine: str,
    address: str | None,
) -> "list[Outcome]":
    """As ``run_jobs``. Ctrl-C and SIGTERM leave the program, saying how to go on."""
    from deepccg.sweep import SweepStopped, run_jobs

    check_data_dir(data_dir)
    try:
        return run_jobs(
            jobs, out=out, data_dir=data_dir, workers=workers, engine=engine, address=address
        )
    except SweepStopped as stop:
        leave(f"Stopped with {stop.left} runs to do; all are saved.", stop.signal)
    except KeyboardInterrupt:
        leave("Stopped at once.", signal.SIGINT)


def leave(told: str, number: int) -> NoReturn:
    """End the program, as the signal of that number would have, saying how to go on."""
    typer.echo(f"{told} The same command again goes on.", err=True)
    raise typer.Exit(128 + number)


def tell_failures(outcomes: "list[Outcome]") -> int:
    """Print each run that failed; runs that failed for one reason share a line."""
    reasons: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.status == "failed":
            reasons.setdefault(outcome.error or "it ended", []).append(outcome.job.name)
    for reason, names in reasons.items():
        which = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        typer.secho(f"{which}: {reason}", fg=typer.colors.RED, err=True)
    return sum(map(len, reasons.values()))


def work(
    config: "RunConfig",
    directory: Path,
    data_dir: Path | None,
    call: "Callable[[ProgressUpdate], RunResult]",
) -> "RunResult":
    """Call with a progress bar. Ctrl-C and SIGTERM leave the program, saying how to continue."""
    from deepccg.experiment import Interrupted, folder_of, resume_command
    from deepccg.records import RunDirectory

    try:
        with _progress_bar(f"{config.method.name}, seed {config.seed}") as update:
            return call(update)
    except Interrupted as stop:
        told, number = f"Stopped and saved at step {stop.step:,} of {stop.steps:,}.", stop.signal
    except KeyboardInterrupt:
        told, number = "Stopped.", signal.SIGINT
    if RunDirectory(directory).config_path.exists():
        place = data_dir or folder_of(config.dataset)
        command = resume_command(directory, place, config.method.name)
        told += f" To continue: {command} (or the same command again)"
    typer.echo(told, err=True)
    raise typer.Exit(128 + number)


@contextlib.contextmanager
def _progress_bar(label: str) -> "Iterator[ProgressUpdate]":
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("batches, loss {task.fields[loss]:.3f}"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    quiet = not console.is_terminal  # a bar that cannot move is only an empty line
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        yield ProgressUpdate(bar, label)


class ProgressUpdate:
    """Moves a bar; the bar appears with the first step."""

    def __init__(self, bar: Progress, label: str) -> None:
        self._bar = bar
        self._task = bar.add_task(label, total=None, loss=0.0)
        self._loss = 0.0

    def __call__(self, step: int, total: int, info: "StepInfo") -> None:
        """After each batch; the loss shown is smoothed."""
        self._loss = info.loss if step == 1 else 0.95 * self._loss + 0.05 * info.loss
        self._bar.update(self._task, completed=step, total=total, loss=self._loss)
