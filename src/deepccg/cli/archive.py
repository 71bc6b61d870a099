"""``deepccg archive``: many runs in one file, and back."""

import warnings
from pathlib import Path
from typing import Annotated

import typer

from deepccg.cli.options import RunsArgument


def archive(
    runs: RunsArgument,
    to: Annotated[
        Path,
        typer.Option(
            help="An archive to add the runs to (.jsonl, .jsonl.gz or .parquet), or a directory to "
            "write them to as run directories."
        ),
    ],
) -> None:
    """Keep finished runs in one file, one line for each, or write them out again.

    An archive has everything that `deepccg report` and `deepccg reproduce` read; checkpoints stay
    out. A run that is in it already is not added again. `.parquet` also has a column for every
    setting and score, for pandas.

    **Example:** `deepccg archive runs/ --to runs.jsonl`, and back:
    `deepccg archive runs.jsonl --to runs/`
    """
    from deepccg.core import InputError
    from deepccg.records import append_to_archive, find_runs, is_archive, write_directories

    as_directories = to.is_dir() or not to.suffix
    if not as_directories and not is_archive(to):
        raise InputError(f"--to {to}: end it in .jsonl, .jsonl.gz or .parquet, or give a directory")
    finished = []
    for run in find_runs(runs):
        if run.finished:
            finished.append(run)
        else:
            warnings.warn(f"left out: {run.path}: not finished", stacklevel=1)
    if not finished:
        raise InputError(f"there is no finished run in {', '.join(map(str, runs))}")
    if as_directories:
        write_directories(finished, to)
        typer.echo(f"Written {_count(len(finished))}: {to}")
    else:
        added = append_to_archive(to, finished)
        there = f", {len(finished) - added} there already" if added < len(finished) else ""
        typer.echo(f"Added {_count(added)}{there}: {to}")


def _count(runs: int) -> str:
    return f"{runs} {'run' if runs == 1 else 'runs'}"
