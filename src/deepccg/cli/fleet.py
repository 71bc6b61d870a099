"""Doing many runs for a command, and saying what went wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from deepccg.sweep import Job, Outcome

PANEL_WHAT, PANEL_HOW, PANEL_WHERE = "What", "How", "Where"

# Options of commands that do many runs.
JobsOption: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        help="Runs at a time; default one for each processor.",
        rich_help_panel=PANEL_HOW,
    ),
]
EngineOption: TypeAlias = Annotated[
    str, typer.Option(help="local, or ray (docs/cluster.md).", rich_help_panel=PANEL_HOW)
]
AddressOption: TypeAlias = Annotated[
    str | None, typer.Option(help="Of the Ray cluster.", rich_help_panel=PANEL_HOW)
]
DataDirOption: TypeAlias = Annotated[
    Path | None, typer.Option(help="Where the data sets lie.", rich_help_panel=PANEL_WHERE)
]


def names(text: str | None) -> list[str]:
    """What stands between the commas."""
    return [name.strip() for name in text.split(",")] if text else []


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
    from deepccg.core import InputError
    from deepccg.sweep import SweepStopped, run_jobs

    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"--data-dir {data_dir} is not a directory")
    try:
        return run_jobs(
            jobs, out=out, data_dir=data_dir, workers=workers, engine=engine, address=address
        )
    except SweepStopped as stop:
        told, number = f"Stopped with {stop.left} runs to do; all are saved.", stop.signal
    except KeyboardInterrupt:
        told, number = "Stopped at once.", 2
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
