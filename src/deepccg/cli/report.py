"""Commands that write a page: ``deepccg report`` and ``deepccg demo``."""

import signal
import webbrowser
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from deepccg.cli.options import OpenOption, RunsArgument, check_out
from deepccg.cli.progress import exit_interrupted


def report(
    runs: RunsArgument,
    out: Annotated[
        Path | None, typer.Option(help="Where the page goes.", show_default="report.html")
    ] = None,
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
    live: Annotated[
        bool,
        typer.Option(
            "--live",
            help="Write nothing: serve the page to this machine, and follow the runs until Ctrl-C.",
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Of the live page.", show_default="one that is free"),
    ] = None,
    open_page: OpenOption = False,
) -> None:
    """Write one HTML page of the results of runs: it needs no network and no other file.

    **Example:** `deepccg report runs/ --open`, or `deepccg report runs/ --live --open`
    """
    from deepccg.core import InputError

    if live:
        if out is not None or export is not None:
            raise InputError("--live writes no files: leave out --out and --export")
        _serve(runs, port or 0, title, memory_images, open_page)
    if port is not None:
        raise InputError("--port is where a live page is served: add --live")
    _write(runs, out or Path("report.html"), title, memory_images, export, open_page)


def _serve(
    runs: list[Path], port: int, title: str, memory_images: int, open_page: bool
) -> NoReturn:
    from deepccg.report.live import serve

    def ready(address: str) -> None:
        typer.echo(address)
        if open_page:
            webbrowser.open(address)

    try:
        serve(runs, port, ready, title=title, memory_images=memory_images)
    except KeyboardInterrupt:
        exit_interrupted("Stopped.", signal.SIGINT)


def _write(
    runs: list[Path],
    out: Path,
    title: str,
    memory_images: int,
    export: Path | None,
    open_page: bool,
) -> None:
    from deepccg.records import write_atomically
    from deepccg.report.assemble import assemble_report
    from deepccg.report.figures import require_matplotlib

    check_out(out)
    if export is not None:
        require_matplotlib()
    assembled = assemble_report(runs, with_memory=memory_images > 0)
    page = assembled.page(title, memory_images)
    write_atomically(out, page.encode(errors="backslashreplace"))  # a path may not be UTF-8
    count = assembled.n_runs
    typer.echo(f"Report of {count} {'run' if count == 1 else 'runs'}: {out}")
    if export is not None:
        written = assembled.export(export)
        typer.echo(f"{len(written)} tables and figures: {export}")
    if open_page:
        webbrowser.open(out.resolve().as_uri())


def demo(
    out: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("demo.html"),
    seed: Annotated[
        int, typer.Option(min=0, help="Which digits, in which order, and all else.")
    ] = 0,
    open_page: OpenOption = False,
) -> None:
    """Write a page that plays a small real run in two dimensions, batch by batch.

    DeepCCG's Gaussians and decision regions follow the moving embeddings in one step; beside
    them, on the same stream, a softmax head (ER) lags behind.

    **Example:** `deepccg demo --open`
    """
    from deepccg.demo import demo_page, simulate
    from deepccg.records import write_atomically

    check_out(out)
    run = simulate(seed)
    write_atomically(out, demo_page(run, f"deepccg demo --seed {seed}").encode())
    learners = run.trajectories.values()
    ends = ", ".join(f"{each.name} {100 * each.accuracy[-1]:.0f} %" for each in learners)
    typer.echo(f"Demo ({ends} at the end): {out}")
    if open_page:
        webbrowser.open(out.resolve().as_uri())
