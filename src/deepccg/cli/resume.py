"""``deepccg resume``: continue what was interrupted."""

import warnings
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepccg.cli.options import CHECKPOINT_HELP, CLASS_HELP, TRACK_HELP, check_data_dir
from deepccg.cli.results import print_results, title
from deepccg.cli.work import work

if TYPE_CHECKING:
    from deepccg.core import Learner
    from deepccg.experiment import RunResult
    from deepccg.records import RunDirectory


def resume(
    directory: Annotated[Path, typer.Argument(help="A run directory, or one with runs below it.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Where the data lies, as in `deepccg run`, or its folder.")
    ] = None,
    method: Annotated[str | None, typer.Option(help=CLASS_HELP)] = None,
    checkpoint_every: Annotated[str | None, typer.Option(help=CHECKPOINT_HELP)] = None,
    track: Annotated[str | None, typer.Option(help=TRACK_HELP)] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object on stdout for each table.")
    ] = False,
) -> None:
    """Continue interrupted runs from their last checkpoint to the end, bit for bit.

    Of a directory with several runs below it, each that is not finished is continued; all of them
    are shown.

    **Example:** `deepccg resume runs/NAME/seed-0 --data-dir DATA`
    """
    from deepccg.core import InputError, InUse
    from deepccg.experiment import learner_class
    from deepccg.records import find_runs

    found = find_runs([directory])
    if not found:
        raise InputError(f"{directory} holds no run: no config.toml there or below")
    check_data_dir(data_dir)
    learner = learner_class(method) if method else None
    results = []
    for run in found:
        try:
            results.append(_resume_one(run, data_dir, learner, checkpoint_every, track))
        except InUse as error:
            if len(found) == 1:
                raise
            warnings.warn(str(error), stacklevel=1)  # the others are not in use
    for table in _tables(results):
        print_results(table, as_json)


def _resume_one(
    target: "RunDirectory",
    data_dir: Path | None,
    learner: "type[Learner] | None",
    checkpoint_every: str | None,
    track: str | None,
) -> "RunResult":
    from deepccg.experiment import recorded
    from deepccg.experiment import resume as resume_one

    config, learner = recorded(target, learner)
    return work(
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

    def table(result: "RunResult") -> tuple[str, str]:
        return title(result.config), result.config.evaluation.model_dump_json()

    def row(result: "RunResult") -> str:
        return result.config.name()

    for _, together in groupby(sorted(results, key=table), key=table):
        ordered = sorted(together, key=lambda result: (row(result), result.config.seed))
        yield [list(seeds) for _, seeds in groupby(ordered, key=row)]
