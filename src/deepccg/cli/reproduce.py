"""``deepccg reproduce``: the paper's experiments beside its numbers, and accuracy against cost."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from deepccg.cli.options import (
    SEEDS_HELP,
    AddressOption,
    DataDirOption,
    EngineOption,
    JobsOption,
    command_line,
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
    experiment: Annotated[
        str, typer.Argument(help="table1, ablation, memory-size, shift or frontier.")
    ],
    dataset: Annotated[
        str | None,
        what(
            help="cifar10, cifar100 or mini-imagenet, several with commas.",
            show_default="cifar10; for memory-size and shift cifar100",
        ),
    ] = None,
    methods: Annotated[
        str | None,
        what(
            help="Some of the methods, with commas: NAME or NAME@PRESET, such as deepccg@paper.",
            show_default="those of the paper",
        ),
    ] = None,
    seeds: Annotated[str | None, what(help=SEEDS_HELP, show_default="0-2")] = None,
    quick: Annotated[
        bool,
        what(
            "--quick",
            help="A small look-alike on the built-in digits: about a minute, no paper's numbers.",
        ),
    ] = False,
    shift_images: Annotated[
        int | None,
        what(
            help="For shift: follow at most so many images. Each batch embeds them.",
            show_default="500",
        ),
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
    """Run one of the paper's experiments and compare with its numbers, or the frontier.

    Every number stands beside the paper's, with its difference to ER on the same seeds and the
    95 % interval of that. Tables go to OUT as Markdown and CSV, figures as PNG and PDF.

    The frontier is not the paper's: accuracy of every online method against what it costs.

    With the default seeds and one core, table1 takes about 2 hours on cifar10 and 26 on cifar100,
    ablation 16 minutes on cifar10, memory-size 8 hours and shift 4 on cifar100. How long the runs
    take that are still missing is said before they start.

    **Example:** `deepccg reproduce table1 --quick`, then
    `deepccg reproduce table1 --dataset cifar10 --data-dir DATA`
    """
    from deepccg.experiment import parse_seeds
    from deepccg.report.catalogue import write_texts
    from deepccg.report.figures import require_matplotlib
    from deepccg.report.reproduction import reproduction_figures, reproduction_tables
    from deepccg.reproduce import duration_note, plan, results, results_csv

    asked = plan(
        experiment,
        datasets=names(dataset),
        methods=names(methods),
        seeds=parse_seeds(seeds) if seeds else (),
        quick=quick,
        shift_images=shift_images,
    )
    if asked.name in ("shift", "frontier") and not dry_run:  # the experiments that have figures
        require_matplotlib()
    runs, missing = _finished_and_missing(asked, out, reuse or [])
    failed = 0
    if missing and not dry_run:
        typer.echo(f"runs to do: {len(missing)}{duration_note(missing)}", err=True)
        outcomes = run_all(
            missing, out=out, data_dir=data_dir, workers=jobs, engine=engine, address=address
        )
        failed = print_failures(outcomes)
        runs, missing = _finished_and_missing(asked, out, reuse or [])
    found = results(asked, runs)
    tables = reproduction_tables(asked, found, runs)
    for table in tables:
        Console().print(table.terminal())
    if not dry_run:
        name = "-".join([experiment, *dict.fromkeys(c.dataset for c in asked.columns)])
        stem = out / (name + "-quick" * quick)
        texts = {".md": "\n".join(table.markdown() for table in tables)}
        texts[".csv"] = results_csv(found, asked.reference)
        written = [*write_texts(texts, stem), *reproduction_figures(asked, runs, stem)]
        typer.echo(f"Written: {', '.join(map(str, written))}", err=True)
    if missing:
        options: dict[str, object] = {
            "dataset": dataset,
            "methods": methods,
            "seeds": seeds,
            "shift-images": shift_images,
            "data-dir": data_dir,
            "out": None if out == Path("runs") else out,
            "reuse": reuse,
        }
        again = command_line("deepccg", "reproduce", experiment, options=options)
        again += " --quick" * quick
        note = duration_note(missing)
        typer.echo(f"{len(missing)} runs are missing{note}. This does them: {again}", err=True)
    if failed:
        raise typer.Exit(1)


def _finished_and_missing(asked: "Plan", out: Path, reuse: list[Path]) -> "tuple[Runs, list[Job]]":
    """Return the finished runs of the plan, and those still to do."""
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
