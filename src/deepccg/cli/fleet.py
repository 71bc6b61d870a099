"""Doing many runs for a command, and saying what went wrong."""

import signal
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import typer

from deepccg.cli.options import check_data_dir

if TYPE_CHECKING:
    from deepccg.sweep import Job, Outcome


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
