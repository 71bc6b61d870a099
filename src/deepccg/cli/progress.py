"""Running for a command: a progress bar, and what to type to continue after an interruption."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from deepccg.cli.options import check_data_dir

if TYPE_CHECKING:
    from deepccg.core import StepInfo
    from deepccg.experiment import RunConfig, RunResult
    from deepccg.sweep import Job, Outcome

OnStep: TypeAlias = "Callable[[int, int, StepInfo], None]"


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
        with _progress_bar(f"{config.method.name}, seed {config.seed}") as on_step:
            return call(data_dir=data_dir, progress=on_step, **options)
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


@contextlib.contextmanager
def _progress_bar(label: str) -> "Iterator[OnStep]":
    """Show a bar with the smoothed loss; yields what to call after each step."""
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
        task = bar.add_task(label, total=None, loss=0.0)
        loss = 0.0

        def on_step(step: int, steps: int, info: "StepInfo") -> None:
            nonlocal loss
            loss = info.loss if step == 1 else 0.95 * loss + 0.05 * info.loss
            bar.update(task, completed=step, total=steps, loss=loss)

        yield on_step
