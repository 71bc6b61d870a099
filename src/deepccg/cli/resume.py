"""``deepccg resume``: continue what was interrupted."""

import json
import warnings
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from deepccg.cli.options import CHECKPOINT_HELP, TRACK_HELP, check_data_dir, names
from deepccg.cli.progress import run_with_progress
from deepccg.cli.results import print_recorded, print_results

if TYPE_CHECKING:
    from deepccg.core import Learner
    from deepccg.experiment import ClassNeeded, RunConfig, RunResult
    from deepccg.records import RunDirectory


def resume(
    directory: Annotated[Path, typer.Argument(help="A run directory, or one with runs below it.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data lies, as in `deepccg run`, or its folder.")
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="package.module:Class, several with commas: your own learners among the runs."
        ),
    ] = None,
    checkpoint_every: Annotated[str | None, typer.Option(help=CHECKPOINT_HELP)] = None,
    track: Annotated[str | None, typer.Option(help=TRACK_HELP)] = None,
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
    from deepccg.records import find_run_directories

    found = find_run_directories(directory)
    if not found:
        raise InputError(f"{directory} holds no run: no config.toml there or below")
    check_data_dir(data_dir)
    classes = {name: learner_class(name) for name in names(method)}
    results: list[RunResult] = []
    read_back: list[tuple[RunConfig, RunDirectory]] = []
    waiting: list[ClassNeeded] = []
    for run in found:
        try:
            results.append(_resume_one(run, data_dir, classes, checkpoint_every, track))
        except ClassNeeded as error:
            config = read_run_config(run)
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
        _ask_for_classes(waiting)


def _resume_one(
    target: "RunDirectory",
    data_dir: Path | None,
    classes: "Mapping[str, type[Learner]]",
    checkpoint_every: str | None,
    track: str | None,
) -> "RunResult":
    from deepccg.experiment import read_run_config
    from deepccg.experiment import resume as resume_one

    config = read_run_config(target)
    learner = classes.get(config.method.name)
    return run_with_progress(
        config,
        target.path,
        data_dir,
        lambda progress: resume_one(
            target.path,
            learner=learner,
            data_dir=data_dir,
            progress=progress,
            checkpoint_every=checkpoint_every,
            track=track,
        ),
    )


def _tables(results: "Iterable[RunResult]") -> "Iterable[list[list[RunResult]]]":
    """Runs of the same title and scoring share a table, those that differ in their seed a row."""
    from deepccg.report.run_results import table_title

    def table(result: "RunResult") -> tuple[str, str]:
        return table_title(result.config), result.config.evaluation.model_dump_json()

    def row(result: "RunResult") -> str:
        return result.config.name()

    for _, together in groupby(sorted(results, key=table), key=table):
        ordered = sorted(together, key=lambda result: (row(result), result.config.seed))
        yield [list(seeds) for _, seeds in groupby(ordered, key=row)]


def _ask_for_classes(waiting: "list[ClassNeeded]") -> NoReturn:
    from deepccg.core import InputError

    runs = ", ".join(str(each.directory) for each in waiting)
    wanted = ",".join(dict.fromkeys(each.method for each in waiting))
    raise InputError(
        f"not continued: {runs}, run with {wanted}: if you trust that code, add --method {wanted}"
    )


def _print_read_back(runs: "list[tuple[RunConfig, RunDirectory]]", as_json: bool) -> None:
    """Finished runs from their records alone: what their learners hold cannot be told."""
    from deepccg.report.run_results import recorded_json

    if not as_json:
        print_recorded(runs)
        return
    for _, seeds in groupby(runs, key=lambda run: (run[1].path.parent, run[0].name())):
        typer.echo(json.dumps(recorded_json(list(seeds)), indent=2, allow_nan=False))
