"""Commands that write a page: ``deepccg report`` and ``deepccg demo``."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from deepccg.cli.options import OpenOption, RunsArgument, check_out


def report(
    runs: RunsArgument,
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
