"""A picture of what a memory holds at the end, class by class."""

import os
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from deepccg.report.gallery import Stored, side_by_side
from deepccg.report.style import INK, new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_LINES = 25  # classes below each other; further ones stand beside them
_INCHES = 0.28  # of one image
_LEAST_WIDTH = 3.8  # inches, for the heading
_GAP = 1  # pixels between two lines of images
_PAPER = 255


def plot_memory(
    stored: Stored, path: str | os.PathLike[str], *, title: str, per_class: int = 10
) -> "Figure":
    """Draw stored images, a line for each class in order of arrival.

    Args:
        stored: The memory.
        path: Where the PNG goes.
        title: The heading.
        per_class: How many images of each class at most.
    """
    blocks = -(-len(stored.classes) // _MOST_LINES)
    lines = -(-len(stored.classes) // blocks)
    per_class = max(min(per_class, int(np.bincount(stored.labels).max(initial=0))), 1)
    width = max(blocks * (_INCHES * per_class + 1.2), _LEAST_WIDTH)
    figure = new_figure(width, _INCHES * lines + 0.7)
    for place, axes in enumerate(figure.subplots(1, blocks, squeeze=False).flat):
        classes = stored.classes[place * lines : (place + 1) * lines]
        pictures = [_line(stored, label, per_class) for label in classes]
        height = pictures[0].shape[0]
        axes.imshow(np.concatenate(pictures), interpolation="nearest")
        named = [stored.name(label) for label in classes]
        middles = [height * (at + 0.5) - 0.5 for at in range(len(classes))]
        axes.set_yticks(middles, named, color=INK, size=8)
        axes.set_xticks([])
        axes.tick_params(length=0)
        axes.set_anchor("NW")
        axes.spines[:].set_visible(False)
        axes.set_ylim(height * lines - 0.5, -0.5)  # the last block may be shorter
    figure.suptitle(title, x=0.02, ha="left", fontsize=10, fontweight="bold", color=INK)
    save(figure, path)
    return figure


def _line(stored: Stored, label: int, per_class: int) -> npt.NDArray[np.uint8]:
    """The images of a class side by side, on paper that is as wide for every class."""
    blank = np.full((per_class, *stored.images.shape[1:]), _PAPER, dtype=np.uint8)
    own = stored.images[stored.labels == label][:per_class]
    blank[: len(own)] = own
    return np.pad(side_by_side(blank), ((0, _GAP), (0, 0), (0, 0)), constant_values=_PAPER)
