"""``deepccg sweep``: all runs of a grid, several at a time, here or on a cluster."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from deepccg.sweep import Job, Outcome

PANEL_WHAT, PANEL_HOW, PANEL_WHERE = "What", "How", "Where"


def sweep(
    grid: Annotated[Path, typer.Argument(help="A TOML file; docs/sweeps.md shows some.")],
    method: Annotated[
        str | None,
        typer.Option(
            help="In place of the grid's methods, several with commas; also package.module:Class.",
            rich_help_panel=PANEL_WHAT,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="In place of the grid's seeds, for example 0-2.", rich_help_panel=PANEL_WHAT
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Only one part of the runs, such as 2/10; the parts are disjoint and make up all.",
            rich_help_panel=PANEL_WHAT,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs only.", rich_help_panel=PANEL_WHAT)
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            help="Runs at a time; default one for each processor.",
            rich_help_panel=PANEL_HOW,
        ),
    ] = None,
    retries: Annotated[
        int,
        typer.Option(help="How often a run that fails is tried again.", rich_help_panel=PANEL_HOW),
    ] = 1,
    engine: Annotated[
        str,
        typer.Option(
            help="local, or ray: an existing Ray cluster (docs/cluster.md).",
            rich_help_panel=PANEL_HOW,
        ),
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Of the Ray cluster, such as 10.0.0.1:6379.", rich_help_panel=PANEL_HOW),
    ] = None,
    checkpoint_every: Annotated[
        str | None,
        typer.Option(
            help="Steps, such as 100, or seconds, such as 30s; default 60s.",
            rich_help_panel=PANEL_HOW,
        ),
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the data sets' parquet files or folders lie.", rich_help_panel=PANEL_WHERE
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Where run directories go.", rich_help_panel=PANEL_WHERE)
    ] = Path("runs"),
    upload: Annotated[
        str | None,
        typer.Option(
            help="Copy finished runs to a URL, such as s3://bucket/runs.",
            rich_help_panel=PANEL_WHERE,
        ),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(
            help="Tell mlflow, tensorboard or wandb the records, too.", rich_help_panel=PANEL_WHERE
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="What came of each run as JSON on stdout; progress on stderr.",
            rich_help_panel=PANEL_WHERE,
        ),
    ] = False,
) -> None:
    """Do all runs of a grid: methods x data sets x streams x scenarios x memory x seeds x fields.

    Finished runs, also those of `deepccg run`, are not repeated; interrupted ones are continued.
    A run that fails leaves the others alone; the exit status is then 1.

    **Example:** `deepccg sweep grid.toml --data-dir DATA --jobs 8`
    """
    from deepccg.core import InputError
    from deepccg.experiment import parse_seeds
    from deepccg.sweep import SweepStopped, load_grid, run_jobs, shard_of

    instead = tuple(name.strip() for name in method.split(",")) if method else ()
    numbers = tuple(parse_seeds(seeds)) if seeds else ()
    wanted = load_grid(grid, methods=instead, seeds=numbers).jobs()
    wanted = shard_of(wanted, shard) if shard else wanted
    if data_dir is not None and not data_dir.is_dir():
        raise InputError(f"--data-dir {data_dir} is not a directory")
    if dry_run:
        _list(wanted, out, as_json)
        return
    try:
        outcomes = run_jobs(
            wanted,
            out=out,
            data_dir=data_dir,
            workers=jobs,
            engine=engine,
            address=address,
            retries=retries,
            upload=upload,
            track=track,
            checkpoint_every=checkpoint_every,
        )
    except SweepStopped as stop:
        _stopped(f"Stopped and saved; runs to do: {stop.left} of {len(wanted)}.", stop.signal)
    except KeyboardInterrupt:
        _stopped("Stopped at once.", 2)
    _report(outcomes, as_json)


def _stopped(told: str, signal: int) -> NoReturn:
    typer.echo(f"{told} The same command again goes on.", err=True)
    raise typer.Exit(128 + signal)


def _list(jobs: "list[Job]", out: Path, as_json: bool) -> None:
    """Each run and how far it is."""
    from deepccg.experiment import is_finished
    from deepccg.records import RunDirectory

    states: dict[str, str] = {}
    for job in jobs:
        target = RunDirectory(out / job.name)
        begun = "begun" if target.config_path.exists() else "new"
        states[job.name] = "finished" if is_finished(job.config, target) else begun
    if as_json:
        typer.echo(json.dumps(states, indent=2))
        return
    for name, state in states.items():
        typer.echo(f"{state:8}  {name}")
    counts = [
        f"{list(states.values()).count(each)} {each}" for each in ("new", "begun", "finished")
    ]
    typer.echo(f"runs: {len(states)}, of which {', '.join(counts)}", err=True)


def _report(outcomes: "list[Outcome]", as_json: bool) -> None:
    """What came of the runs; exit status 1 if some failed."""
    from deepccg.cli.results import print_recorded
    from deepccg.records import RunDirectory

    failed = [outcome for outcome in outcomes if outcome.status == "failed"]
    if as_json:
        entries = [
            {
                "run": outcome.job.name,
                "directory": str(outcome.directory),
                "status": outcome.status,
                "error": outcome.error,
                "attempts": outcome.attempts,
            }
            for outcome in outcomes
        ]
        typer.echo(json.dumps(entries, indent=2))
    else:
        done = [outcome for outcome in outcomes if outcome.status != "failed"]
        print_recorded([(outcome.job.config, RunDirectory(outcome.directory)) for outcome in done])
    counts = dict.fromkeys(("finished", "already", "failed"), 0)
    for outcome in outcomes:
        counts[outcome.status] += 1
    typer.echo(
        f"runs: {len(outcomes)}, of which {counts['finished']} finished, {counts['already']} had "
        f"finished before, {counts['failed']} failed",
        err=True,
    )
    for outcome in failed:
        log = RunDirectory(outcome.directory).log_path
        where = f" (see {log})" if log.exists() else ""
        typer.secho(f"{outcome.job.name}: {outcome.error}{where}", fg=typer.colors.RED, err=True)
    if failed:
        raise typer.Exit(1)
