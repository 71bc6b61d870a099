"""Doing one run for a command: a bar that moves, and a word on how to continue when stopped."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from deepccg.core import StepInfo
    from deepccg.experiment import RunConfig, RunResult


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
