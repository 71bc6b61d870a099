"""``deepccg resume``: continue what was interrupted."""

import json
import warnings
from collections.abc import Iterable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deepccg.cli.options import CHECKPOINT, SKIP_HELP, TRACK_HELP, check_data_dir, names
from deepccg.cli.progress import run_with_progress
from deepccg.cli.run import print_results

if TYPE_CHECKING:
    from deepccg.experiment import RunConfig, RunResult
    from deepccg.records import RunDirectory


def resume(
    directory: Annotated[Path, typer.Argument(help="A run directory, or one with runs below it.")],
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where the data lies, as in `deepccg run`, or its folder.",
            show_default="from the Hugging Face hub",
        ),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="package.module:Class, several with commas: your own learners among the runs."
        ),
    ] = None,
    checkpoint_every: Annotated[str | None, typer.Option(**CHECKPOINT)] = None,
    track: Annotated[str | None, typer.Option(help=TRACK_HELP)] = None,
    skip_unreadable: Annotated[bool, typer.Option("--skip-unreadable", help=SKIP_HELP)] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout for each table.")
    ] = False,
) -> None:
    """Continue interrupted runs from their last checkpoint to the end, bit for bit.

    Of a directory with several runs below it, each that is not finished is continued; all of them
    are shown. A directory cannot make this program import code, so learners of your own have to be
    named; finished runs are shown without.

    **Example:** `deepccg resume runs/NAME/seed-0 --data-dir DATA`
    """
    from deepccg.core import InputError, InUse
    from deepccg.experiment import ClassNeeded, is_finished, learner_class, read_run_config
    from deepccg.experiment import resume as resume_run
    from deepccg.records import find_run_directories
    from deepccg.streams import load_dataset

    found = find_run_directories(directory)
    if not found:
        raise InputError(f"{directory} holds no run: no config.toml there or below")
    check_data_dir(data_dir)
    classes = {name: learner_class(name) for name in names(method)}
    results: list[RunResult] = []
    read_back: list[tuple[RunConfig, RunDirectory]] = []
    waiting: list[ClassNeeded] = []
    data = None
    if skip_unreadable and data_dir is not None:
        data = load_dataset(f"folder:{data_dir}", skip_unreadable=True)
    options = {"checkpoint_every": checkpoint_every, "track": track, "data": data}
    for run in found:
        config = read_run_config(run)
        call = partial(resume_run, run.path, learner=classes.get(config.method.name))
        try:
            results.append(run_with_progress(call, config, run.path, data_dir, **options))
        except ClassNeeded as error:
            if is_finished(config, run):
                read_back.append((config, run))
            else:
                waiting.append(error)
        except InUse as error:
            if len(found) == 1:
                raise
            warnings.warn(str(error), stacklevel=1)  # the others are not in use
    for table in _tables(results):
        print_results(table, as_json)
    _print_read_back(read_back, as_json)
    if waiting:
        runs = ", ".join(str(each.directory) for each in waiting)
        code = ",".join(dict.fromkeys(each.method for each in waiting))
        raise InputError(
            f"not continued: {runs}, run with {code}: if you trust that code, add --method {code}"
        )


def _tables(results: "Iterable[RunResult]") -> "Iterable[list[list[RunResult]]]":
    """Group runs: those of a title and scoring share a table, those of all but a seed a row."""
    from deepccg.report.run_results import table_key

    def key(result: "RunResult") -> tuple[tuple[str, str], str, int]:
        return table_key(result.config), result.config.name(), result.config.seed

    for _, together in groupby(sorted(results, key=key), key=lambda result: key(result)[0]):
        yield [list(seeds) for _, seeds in groupby(together, key=lambda result: key(result)[1])]


def _print_read_back(runs: "list[tuple[RunConfig, RunDirectory]]", as_json: bool) -> None:
    """Print finished runs from their records alone: what their learners hold is not known."""
    from deepccg.report.run_results import recorded_json, recorded_tables

    if not as_json:
        for table in recorded_tables(runs):
            Console().print(table.terminal())
        return
    for _, seeds in groupby(runs, key=lambda run: (run[1].path.parent, run[0].name())):
        typer.echo(json.dumps(recorded_json(list(seeds)), indent=2, allow_nan=False))
