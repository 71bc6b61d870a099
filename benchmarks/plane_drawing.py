"""Embeddings in a plane, drawn with matplotlib: points, regions, class Gaussians, trails."""

from typing import Any

import numpy as np
import numpy.typing as npt

from deepccg.demo.simulate import REACH
from deepccg.report.figures import LIGHT

Floats = npt.NDArray[np.floating[Any]]

GROUND = 240  # places a side at which decision regions are computed


def class_scores(surface: Floats, z: Floats) -> Floats:
    """``k + l . z - a |z|^2`` of each class at places ``z [N, 2]``, ``[N, C]``; -inf if unknown."""
    scores = surface[:, 0] + z @ surface[:, 1:3].T - (z**2).sum(axis=1)[:, None] * surface[:, 3]
    return np.where(np.isnan(scores), -np.inf, scores)


def colours(classes: npt.NDArray[np.int64]) -> Floats:
    """Red, green and blue of each class, ``[N, 3]``."""
    table = np.array([[int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)] for text in LIGHT])
    return table[classes]


def draw_regions(axes: Any, surface: Floats, reach: float = REACH) -> None:
    """Colour the plane by the class with the highest score."""
    line = (np.arange(GROUND) + 0.5) / GROUND * 2 * reach - reach
    places = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    winner = class_scores(surface, places).argmax(axis=1)
    ground = 1 - 0.27 * (1 - colours(winner))  # pale
    axes.imshow(
        ground.reshape(GROUND, GROUND, 3), origin="lower", extent=(-reach, reach, -reach, reach)
    )
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), xticks=[], yticks=[])
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_points(
    axes: Any, z: Floats, labels: npt.NDArray[np.int64], surface: Floats, before: Floats | None
) -> None:
    """Draw points filled where the surface is right, else as rings, and their trails."""
    known = ~np.isnan(surface[labels, 0])
    own, right = colours(labels), class_scores(surface, z).argmax(axis=1) == labels
    if before is not None:
        for start, end, colour in zip(before[known], z[known], own[known], strict=True):
            axes.plot(*np.stack([start, end]).T, color=colour, alpha=0.35, linewidth=0.6, zorder=2)
    fill = np.where(right[:, None], own, 1.0)
    axes.scatter(*z[known].T, s=11, c=fill[known], edgecolors=own[known], linewidths=0.8, zorder=3)


def draw_gaussians(axes: Any, surface: Floats, names: list[str]) -> None:
    """Draw circles at one and two standard deviations around each class mean, and its name."""
    from matplotlib.patches import Circle

    for c, (k, across, up, bend) in enumerate(surface.astype(float)):
        if np.isnan(k) or bend < 1e-3:  # unknown, or no Gaussian
            continue
        middle = across / (2 * bend), up / (2 * bend)
        for sigmas, width in ((1, 1.5), (2, 0.7)):
            radius = sigmas / np.sqrt(2 * bend)
            axes.add_patch(
                Circle(middle, radius, fill=False, ec=LIGHT[c], linewidth=width, zorder=4)
            )
        write(axes, *middle, names[c])


def write(axes: Any, x: float, y: float, text: str) -> None:
    """Write text that stands out from the ground."""
    from matplotlib.patheffects import withStroke

    halo = [withStroke(linewidth=2.5, foreground="white")]
    axes.text(
        x, y, text, ha="center", va="center", weight="bold", fontsize=9, path_effects=halo, zorder=5
    )
