"""``deepccg sweep``: all runs of a grid, several at a time, here or on a cluster."""

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deepccg.cli.options import (
    CHECKPOINT,
    AddressOption,
    DataDirOption,
    EngineOption,
    JobsOption,
    OutOption,
    RetriesOption,
    TrackOption,
    check_data_dir,
    how,
    names,
    what,
    where,
)
from deepccg.cli.progress import run_all

GRID_EXAMPLE = """
**A grid.toml** of 2 methods x 2 seeds x 2 step sizes = 8 runs:

```toml
methods = ["deepccg", "er"]
datasets = ["digits"]
scenarios = ["class"]
seeds = "0-1"

[fields]                        # any further axis
"method.lr" = [0.1, 0.03]

[settings]                      # the same in all runs
"stream.examples_per_class" = 100
```

All keys: docs/sweeps.md.
"""

if TYPE_CHECKING:
    from deepccg.sweep import Job, Outcome


def sweep(
    grid: Annotated[Path, typer.Argument(help="A TOML file, as shown below.")],
    method: Annotated[
        str | None,
        what(
            help="Replaces the grid's methods, several with commas; also package.module:Class.",
            show_default="the grid's",
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        what(help="Replaces the grid's seeds, for example 0-2.", show_default="the grid's"),
    ] = None,
    shard: Annotated[
        str | None,
        what(
            help="Only one part of the runs, such as 2/10; the parts are disjoint and make up all.",
            show_default="all runs",
        ),
    ] = None,
    dry_run: Annotated[bool, what("--dry-run", help="List the runs only.")] = False,
    jobs: JobsOption = None,
    retries: RetriesOption = 1,
    engine: EngineOption = "local",
    address: AddressOption = None,
    checkpoint_every: Annotated[str | None, how(**CHECKPOINT)] = None,
    data_dir: DataDirOption = None,
    out: OutOption = Path("runs"),
    upload: Annotated[
        str | None,
        where(help="Copy finished runs to a URL, such as s3://bucket/runs."),
    ] = None,
    track: TrackOption = None,
    as_json: Annotated[
        bool, where("--json", help="The outcome of each run as JSON on stdout; progress on stderr.")
    ] = False,
) -> None:
    """Do all runs of a grid: methods x data sets x streams x scenarios x memory x seeds x fields.

    Finished runs, also those of `deepccg run`, are not repeated; interrupted ones are continued.
    A run that fails leaves the others alone; the exit status is then 1.

    **Example:** `deepccg sweep grid.toml --data-dir DATA --jobs 8`
    """
    from deepccg.experiment import parse_seeds
    from deepccg.sweep import load_grid, shard_of

    numbers = tuple(parse_seeds(seeds)) if seeds else ()
    runs = load_grid(grid, methods=tuple(names(method)), seeds=numbers).jobs()
    runs = shard_of(runs, shard) if shard else runs
    check_data_dir(data_dir)
    if dry_run:
        _list_jobs(runs, out, as_json)
        return
    outcomes = run_all(
        runs,
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
    _print_outcomes(outcomes, as_json)


def _list_jobs(jobs: "list[Job]", out: Path, as_json: bool) -> None:
    """Print each run and its state."""
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
    counts = Counter(states.values())
    listed = ", ".join(f"{counts[state]} {state}" for state in ("new", "begun", "finished"))
    typer.echo(f"runs: {len(states)}, of which {listed}", err=True)


def _print_outcomes(outcomes: "list[Outcome]", as_json: bool) -> None:
    """Print results, counts and failures; exit status 1 if a run failed."""
    from deepccg.records import RunDirectory
    from deepccg.report.run_results import recorded_tables

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
        runs = [(outcome.job.config, RunDirectory(outcome.directory)) for outcome in done]
        for table in recorded_tables(runs):
            Console().print(table.terminal())
    counts = Counter(outcome.status for outcome in outcomes)
    typer.echo(
        f"runs: {len(outcomes)}, of which {counts['finished']} finished, {counts['already']} had "
        f"finished before, {counts['failed']} failed",
        err=True,
    )
    for outcome in failed:
        log = RunDirectory(outcome.directory).log_path
        hint = f" (see {log})" if log.exists() else ""
        typer.secho(f"{outcome.job.name}: {outcome.error}{hint}", fg=typer.colors.RED, err=True)
    if failed:
        raise typer.Exit(1)
