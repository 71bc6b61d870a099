"""What a memory holds at the end, class by class."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from deepccg.report.figures import description as fig
from deepccg.report.gallery import Stored, side_by_side

_MOST_LINES = 25  # classes below each other; further ones stand beside them
_SIDE, _LEFT = 22, 80  # pixels, of an image on the figure and for the names
_GAP = 1  # pixels of an image, between two lines of them
_WHITE = 255


def memory_images(stored: Stored, title: str, per_class: int = 10) -> fig.Figure:
    """Describe at most ``per_class`` stored images of each class, in order of arrival."""
    blocks = -(-len(stored.classes) // _MOST_LINES)
    lines = -(-len(stored.classes) // blocks)
    per_class = max(min(per_class, int(np.bincount(stored.labels).max(initial=0))), 1)
    firsts = range(0, len(stored.classes), lines)
    panels = [_panel(stored, stored.classes[k : k + lines], lines, per_class) for k in firsts]
    return fig.Figure((replace(panels[0], title=title), *panels[1:]), columns=blocks)


def _panel(stored: Stored, classes: tuple[int, ...], lines: int, per_class: int) -> fig.Panel:
    pixels = np.concatenate([_line(stored, label, per_class) for label in classes])
    right = len(classes) * pixels.shape[1] / pixels.shape[0]  # in lines: pixels are square
    names = [stored.name(label) for label in classes]
    return fig.Panel(
        "",
        fig.Axis("", 0, right),
        fig.category_axis([*names, *[""] * (lines - len(names))]),
        alt=f"Stored images of {', '.join(names)}",
        image=fig.Image(0, right, len(classes) - 0.5, -0.5, pixels),
        width=_LEFT + _SIDE * right,
        height=_SIDE * lines,
        left=_LEFT,
        right=0,
    )


def _line(stored: Stored, label: int, per_class: int) -> npt.NDArray[np.uint8]:
    """The images of a class side by side, with a white rest that makes all lines equally wide."""
    blank = np.full((per_class, *stored.images.shape[1:]), _WHITE, dtype=np.uint8)
    own = stored.images[stored.labels == label][:per_class]
    blank[: len(own)] = own
    return np.pad(side_by_side(blank), ((0, _GAP), (0, 0), (0, 0)), constant_values=_WHITE)
