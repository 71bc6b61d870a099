"""The images stored in a memory, class by class: as strips for the page, and as a figure."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from deepccg.report.figures import description as fig

_LARGEST_SIDE = 48  # pixels; larger images are made smaller
_QUALITY = 85
_MOST_LINES = 25  # classes below each other; further ones stand beside them
_SIDE, _LEFT = 22, 80  # pixels, of an image on the figure and for the names
_GAP = 1  # pixels of an image, between two lines of them
_WHITE = 255


@dataclass(frozen=True)
class Stored:
    """The examples in a run's memory."""

    images: npt.NDArray[np.uint8]  # ``[M, C, H, W]``, with one or three channels
    labels: npt.NDArray[np.int64]  # ``[M]``
    classes: tuple[int, ...]  # all labels, in order of arrival
    names: tuple[str, ...]  # of each label

    def name(self, label: int) -> str:
        """Return the name of a class."""
        return self.names[label] if 0 <= label < len(self.names) else str(label)


@dataclass(frozen=True)
class ClassStrip:
    """The stored images of one class, side by side."""

    name: str  # of the class
    stored: int  # how many there are
    shown: int  # how many of them are in the picture
    width: int  # of the picture, in pixels of the images
    height: int
    source: str  # the picture as a data URI; empty if there are none


def strips(stored: Stored, per_class: int) -> list[ClassStrip]:
    """Return one picture for each class, of at most ``per_class`` images."""
    found = []
    for label in stored.classes:
        own = stored.images[stored.labels == label]
        picture = side_by_side(own[:per_class])
        height, width, _ = picture.shape
        source = _data_uri(picture) if picture.size else ""
        shown = min(len(own), per_class)
        found.append(ClassStrip(stored.name(label), len(own), shown, width, height, source))
    return found


def fair_share(memories: Sequence[Stored], most: int, pixels: int) -> int:
    """Return how many images of each class a memory may show, for a page of bounded size."""
    needed = sum(
        len(m.classes) * min(_LARGEST_SIDE, max(m.images.shape[2:])) ** 2 for m in memories
    )
    return most if needed == 0 else max(1, min(most, pixels // needed))


def side_by_side(images: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Join images ``[N, C, H, W]`` to a picture ``[H, N W, 3]``, large ones made smaller.

    >>> side_by_side(np.zeros((3, 1, 8, 8), np.uint8)).shape
    (8, 24, 3)
    """
    every = -(-max(images.shape[2:]) // _LARGEST_SIDE)
    small = images[:, :, ::every, ::every]
    count, channels, height, width = small.shape
    coloured = np.broadcast_to(small, (count, 3, height, width)) if channels == 1 else small
    return np.ascontiguousarray(coloured.transpose(2, 0, 3, 1).reshape(height, count * width, 3))


def memory_images(stored: Stored, title: str, per_class: int = 10) -> fig.Figure:
    """Describe at most ``per_class`` stored images of each class, in order of arrival."""
    blocks = -(-len(stored.classes) // _MOST_LINES)
    lines = -(-len(stored.classes) // blocks)
    per_class = max(min(per_class, int(np.bincount(stored.labels).max(initial=0))), 1)
    firsts = range(0, len(stored.classes), lines)
    panels = [_panel(stored, stored.classes[k : k + lines], lines, per_class) for k in firsts]
    return fig.Figure((replace(panels[0], title=title), *panels[1:]), columns=blocks)


def _panel(stored: Stored, classes: tuple[int, ...], lines: int, per_class: int) -> fig.Panel:
    rows = [_line(stored, label, per_class) for label in classes]
    rows += [np.full_like(rows[0], _WHITE)] * (lines - len(rows))
    right = rows[0].shape[1] / rows[0].shape[0]  # in lines: pixels are square
    names = [stored.name(label) for label in classes]
    return fig.Panel(
        "",
        fig.Axis("", 0, right),
        fig.category_axis([*names, *[""] * (lines - len(names))]),
        alt=f"Stored images of {', '.join(names)}",
        image=np.concatenate(rows),
        width=_LEFT + _SIDE * right,
        height=_SIDE * lines,
        left=_LEFT,
        right=0,
    )


def _line(stored: Stored, label: int, per_class: int) -> npt.NDArray[np.uint8]:
    """Return the images of a class side by side, with white ones up to ``per_class``."""
    blank = np.full((per_class, *stored.images.shape[1:]), _WHITE, dtype=np.uint8)
    own = stored.images[stored.labels == label][:per_class]
    blank[: len(own)] = own
    return np.pad(side_by_side(blank), ((0, _GAP), (0, 0), (0, 0)), constant_values=_WHITE)


def _data_uri(picture: npt.NDArray[np.uint8]) -> str:
    """Return a picture as PNG or JPEG, whichever is smaller."""
    from PIL import Image

    grey = bool((picture == picture[..., :1]).all())
    image = Image.fromarray(picture[..., 0] if grey else picture)
    content = {"png": io.BytesIO(), "jpeg": io.BytesIO()}
    image.save(content["png"], "PNG", optimize=True)
    image.save(content["jpeg"], "JPEG", quality=_QUALITY, subsampling=0, optimize=True)
    kind = min(content, key=lambda each: len(content[each].getvalue()))
    return f"data:image/{kind};base64,{base64.b64encode(content[kind].getvalue()).decode()}"
