"""``deepccg demo``: the idea of the paper as a page that plays."""

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from deepccg.cli.options import OpenOption, check_out

ABOUT = {
    "deepccg": "The classifier is derived from the memory after every step: means and regions are "
    "where the points are now.",
    "er": "The classifier is a softmax head with weights of its own, which follow the points by "
    "gradient steps.",
}


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
    from deepccg.demo import REACH, Panel, demo_page, simulate
    from deepccg.records import write_atomically
    from deepccg.report import method_name

    check_out(out)
    shown = simulate(seed)
    panels = [
        Panel(method_name(name), ABOUT[name], seen.positions, seen.surfaces, seen.accuracy)
        for name, seen in shown.trajectories.items()
    ]
    page = demo_page(
        panels,
        labels=shown.labels,
        class_names=[str(label) for label in shown.classes],
        tasks=shown.tasks,
        reach=REACH,
        command=f"deepccg demo --seed {seed}",
    )
    write_atomically(out, page.encode())
    ends = ", ".join(f"{panel.name} {100 * panel.accuracy[-1]:.0f} %" for panel in panels)
    typer.echo(f"Demo ({ends} at the end): {out}")
    if open_page:
        webbrowser.open(out.resolve().as_uri())
