"""``deepccg report``: one page of what runs gave."""

import warnings
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepccg.cli.options import OpenOption, check_out

if TYPE_CHECKING:
    from deepccg.records import RecordedRun
    from deepccg.report import About, Row, Run, Setting, Stored

NO_AUDIT = (
    "protocol: no audit.json in the run directory: it was not kept, or an earlier version began it"
)
NO_CHECKPOINT = "no checkpoint in the run directory: what the memory held is not known"


def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Run directories, ones with runs below, or archives.")
    ],
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The page's heading.")] = "deepccg report",
    memory_images: Annotated[
        int, typer.Option(min=0, help="Stored images shown of each class; 0 for none.")
    ] = 10,
    export: Annotated[
        Path | None,
        typer.Option(
            help="Also write all tables as Markdown, LaTeX and CSV and all figures as PNG and "
            "PDF into this directory."
        ),
    ] = None,
    open_page: OpenOption = False,
) -> None:
    """Write one HTML page of the results of runs: it needs no network and no other file.

    **Example:** `deepccg report runs/ --open`
    """
    from deepccg.cli.completing import completed
    from deepccg.core import InputError
    from deepccg.records import find_runs, write_atomically
    from deepccg.report import export_report, grouped, report_page

    check_out(out)
    found, left_out = _read(find_runs(runs))
    if not found:
        reason = f" ({left_out[0]})" if left_out else ""
        raise InputError(f"there is no finished run in {', '.join(map(str, runs))}{reason}")
    settings = grouped(map(completed, found))
    about = {row.key: _about(row, memory_images > 0) for each in settings for row in each.rows}
    page = report_page(
        settings, about, title=title, left_out=left_out, images_per_class=memory_images
    )
    write_atomically(out, page.encode())
    typer.echo(f"Report of {_count(settings)}: {out}")
    if export is not None:
        written = export_report(settings, about, export)
        typer.echo(f"{len(written)} tables and figures: {export}")
    if open_page:
        webbrowser.open(out.resolve().as_uri())


def _read(runs: "list[RecordedRun]") -> "tuple[list[Run], list[str]]":
    """Finished runs, and what is not shown with the reason."""
    from deepccg.records import RecordError
    from deepccg.report import read_run

    found, left_out = [], []
    for recorded in runs:
        try:
            run = read_run(recorded)
        except RecordError as error:
            warnings.warn(f"left out: {error}", stacklevel=2)
            left_out.append(str(error))
            continue
        if run is None:
            left_out.append(f"{recorded.path}: not finished")
        else:
            found.append(run)
    return found, left_out


def _about(row: "Row", with_memory: bool) -> "About":
    from deepccg.experiment import protocol_line
    from deepccg.report import About

    protocols = {}
    for seed, run in row.runs.items():
        if run.audit is None:
            protocols[seed] = NO_AUDIT
            continue
        try:
            protocols[seed] = protocol_line(dict(run.audit))
        except (KeyError, TypeError, ValueError, AttributeError):
            protocols[seed] = "protocol: audit.json cannot be read"
    stored = _stored(row.first.path) if with_memory else "not asked for"
    return About(_command(row), protocols, stored)


def _command(row: "Row") -> str:
    """The command of all seeds; where flags do not lead there, with the recorded file."""
    import shlex

    from deepccg.core import InputError
    from deepccg.experiment import RunConfig, folder_of, run_command, validated
    from deepccg.report import seeds_text

    seeds = seeds_text(row.runs)
    dataset = str(row.config.get("dataset"))
    data_dir = None if dataset == "digits" or folder_of(dataset) else "DATA"
    try:
        command = run_command(validated(RunConfig, row.config), seeds, data_dir)
    except InputError:
        command = None
    if command is not None:
        return command
    words = ["deepccg", "run", "--config", str(row.first.path / "config.toml"), "--seeds", seeds]
    return shlex.join([*words, *(["--data-dir", data_dir] if data_dir else [])])


def _stored(directory: Path) -> "Stored | str":
    """The memory of a run, or why it is not shown."""
    import numpy as np

    from deepccg.core import DeepCCGError
    from deepccg.experiment import stored_examples
    from deepccg.records import RecordError, RunDirectory
    from deepccg.report import Stored

    target = RunDirectory(directory)
    if not target.checkpoint_path.exists() and not target.previous_path.exists():
        return NO_CHECKPOINT
    try:
        held = stored_examples(directory)
    except (DeepCCGError, RecordError) as error:
        return str(error)
    if len(held.y) == 0:
        return "stores no examples"
    if held.x.ndim != 4 or held.x.dtype != np.uint8:
        return "its examples are vectors, not images"
    return Stored(held.x.astype(np.uint8), held.y, held.classes, held.class_names)


def _count(settings: "list[Setting]") -> str:
    runs = sum(len(row.runs) for setting in settings for row in setting.rows)
    return f"{runs} {'run' if runs == 1 else 'runs'}"
