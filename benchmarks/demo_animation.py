"""Write docs/images/demo.gif: the telling steps of ``deepccg demo``, from the same simulated run.

Run it: ``make figures``
"""

import io
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image
from plane_drawing import draw_gaussians, draw_points, draw_regions, write

from deepccg.demo import DemoRun, simulate
from deepccg.demo.page import telling_batch, views

OUT = Path(__file__).parents[1] / "docs" / "images" / "demo.gif"
BEFORE, AFTER = 2, 3  # batches around the telling one
MOVING = 5  # frames in which the points of a batch move
FRAME, REST, LAST = 70, 650, 2200  # milliseconds
COLOURS = 64


def main() -> None:
    """Simulate, draw every frame, write the file."""
    mpl.use("Agg")
    run = simulate(seed=0)
    telling = telling_batch(next(iter(run.trajectories.values())), run.tasks)
    frames, durations = [], []
    for batch in range(telling - BEFORE, telling + AFTER + 1):
        for step in range(1, MOVING + 1):
            share = step / MOVING
            frames.append(draw_frame(run, batch, share * share * (3 - 2 * share), arrived=False))
            durations.append(FRAME)
        frames.append(draw_frame(run, batch, 1.0, arrived=True))
        durations.append(LAST if batch == telling else REST)
    palette = frames[-1].quantize(COLOURS)
    plain = [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]
    plain[0].save(OUT, save_all=True, append_images=plain[1:], duration=durations, loop=0)
    print(f"{OUT.name}: {len(plain)} frames, {OUT.stat().st_size / 1000:.0f} kB")


def draw_frame(run: DemoRun, batch: int, share: float, *, arrived: bool) -> Image.Image:
    """Draw the points on their way into ``batch``; the classifier follows when they arrived."""
    from matplotlib import pyplot as plt

    trajectories = list(run.trajectories.values())
    names = [str(label) for label in run.classes]
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.75), dpi=100)
    figure.subplots_adjust(left=0.005, right=0.995, bottom=0.005, top=0.89, wspace=0.03)
    for each, view in zip(axes, views(trajectories), strict=True):
        trajectory = trajectories[view.trajectory]
        start, end = trajectory.positions[batch - 1], trajectory.positions[batch]
        surface = trajectory.surfaces[batch if arrived and not view.lag else batch - 1]
        z = (1 - share) * start + share * end
        draw_regions(each, surface)
        draw_points(each, z, run.labels, surface, start)
        draw_gaussians(each, surface, names)
        if surface[0, 3] < 1e-3:  # no Gaussians to be named
            for c, name in enumerate(names):
                if not np.isnan(surface[c, 0]):
                    write(each, *z[run.labels == c].mean(axis=0), name)
        each.set_title(
            title(view.name, view.accuracy[batch if arrived else batch - 1]), fontsize=10
        )
    picture = image_of(figure)
    plt.close(figure)
    return picture


def title(name: str, accuracy: float) -> str:
    """A name and a percentage."""
    return f"{name}: {100 * accuracy:.0f} %"


def image_of(figure: Any) -> Image.Image:
    """A figure as an image."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return Image.open(buffer).convert("RGB")


if __name__ == "__main__":
    main()
