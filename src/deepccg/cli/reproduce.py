"""``deepccg reproduce``: the paper's experiments, ours beside its numbers."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deepccg.cli.options import (
    AddressOption,
    DataDirOption,
    EngineOption,
    JobsOption,
    how,
    names,
    what,
    where,
)
from deepccg.cli.progress import print_failures, run_all

if TYPE_CHECKING:
    from deepccg.reproduce import Plan, Runs
    from deepccg.sweep import Job


def reproduce(
    experiment: Annotated[str, typer.Argument(help="table1, ablation, memory-size or shift.")],
    dataset: Annotated[
        str | None,
        what(
            help="cifar10, cifar100 or mini-imagenet, several with commas; default cifar10, for "
            "memory-size and shift cifar100."
        ),
    ] = None,
    methods: Annotated[
        str | None,
        what(help="Some of the methods, with commas: NAME or NAME@PRESET, such as deepccg@paper."),
    ] = None,
    seeds: Annotated[str | None, what(help="For example 0-4; default 0-2.")] = None,
    quick: Annotated[
        bool,
        what(
            "--quick",
            help="A small look-alike on the built-in digits: about a minute, no paper's numbers.",
        ),
    ] = False,
    shift_images: Annotated[
        int | None,
        what(help="For shift: follow at most so many images; default 500. Each batch embeds them."),
    ] = None,
    dry_run: Annotated[
        bool, how("--dry-run", help="Run nothing: show what there is and which runs are missing.")
    ] = False,
    jobs: JobsOption = None,
    engine: EngineOption = "local",
    address: AddressOption = None,
    data_dir: DataDirOption = None,
    out: Annotated[
        Path,
        where(help="Where run directories and tables go; runs that are there are not repeated."),
    ] = Path("runs"),
    reuse: Annotated[
        list[Path] | None,
        where(
            help="Finished runs elsewhere that count too: a directory or an archive; repeatable."
        ),
    ] = None,
) -> None:
    """Run one of the paper's experiments and compare with its numbers.

    Every number stands beside the paper's, with its difference to ER on the same seeds and the
    95 % interval of that. Tables go to OUT as Markdown and CSV, figures as PNG and PDF.

    **Example:** `deepccg reproduce table1 --quick`, then
    `deepccg reproduce table1 --dataset cifar10 --data-dir DATA`
    """
    from deepccg.cli.paper import figures, sheets_of
    from deepccg.experiment import parse_seeds
    from deepccg.report import sheet_table
    from deepccg.reproduce import plan, results, results_csv

    asked = plan(
        experiment,
        datasets=names(dataset),
        methods=names(methods),
        seeds=parse_seeds(seeds) if seeds else (),
        quick=quick,
        shift_images=shift_images,
    )
    runs, missing = _finished_and_missing(asked, out, reuse or [])
    failed = 0
    if missing and not dry_run:
        outcomes = run_all(
            missing, out=out, data_dir=data_dir, workers=jobs, engine=engine, address=address
        )
        failed = print_failures(outcomes)
        runs, missing = _finished_and_missing(asked, out, reuse or [])
    found = results(asked, runs)
    sheets = sheets_of(asked, found, runs)
    for sheet in sheets:
        Console().print(sheet_table(sheet))
    if not dry_run:
        name = "-".join([experiment, *dict.fromkeys(c.dataset for c in asked.columns)])
        stem = out / (name + "-quick" * quick)
        texts = {".md": "\n".join(sheet.markdown() for sheet in sheets)}
        texts[".csv"] = results_csv(found, asked.reference)
        written = [*_write(texts, stem), *figures(asked, runs, stem)]
        typer.echo(f"Written: {', '.join(map(str, written))}", err=True)
    if missing:
        options: dict[str, object] = {
            "dataset": dataset,
            "methods": methods,
            "seeds": seeds,
            "shift-images": shift_images,
            "data-dir": data_dir,
            "out": None if out == Path("runs") else out,
            "reuse": reuse or [],
        }
        again = _command(experiment, options, quick)
        typer.echo(f"{len(missing)} runs are missing. This does them: {again}", err=True)
    if failed:
        raise typer.Exit(1)


def _finished_and_missing(asked: "Plan", out: Path, reuse: list[Path]) -> "tuple[Runs, list[Job]]":
    """The finished runs of the plan, and those still to do."""
    from deepccg.reproduce import FinishedRuns
    from deepccg.sweep import Job

    paths = [*reuse, *([out] if out.is_dir() else [])]
    finished, runs, missing = FinishedRuns(paths, {v.method for v in asked.variants}), {}, {}
    for variant, column, config in asked.configs():
        run = finished.find(config)
        if run is None:
            job = Job(config, config.seed)
            missing[job.name] = job
        else:
            runs[variant, column, config.seed] = run
    return runs, list(missing.values())


def _write(texts: dict[str, str], stem: Path) -> list[Path]:
    """A file for each suffix; returns them."""
    from deepccg.records import write_atomically

    paths = [stem.with_name(stem.name + suffix) for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_atomically(path, text.encode())
    return paths


def _command(experiment: str, options: dict[str, object], quick: bool) -> str:
    """What to type for the runs that are missing."""
    words = ["deepccg", "reproduce", experiment]
    for name, value in options.items():
        each = value if isinstance(value, list) else [value]
        words += [word for one in each if one is not None for word in (f"--{name}", str(one))]
    return shlex.join([*words, *["--quick"] * quick])
