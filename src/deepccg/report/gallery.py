"""The images stored in a memory, class by class, as pictures within the page."""

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_LARGEST_SIDE = 48  # pixels; larger images are made smaller
_QUALITY = 85


@dataclass(frozen=True)
class Stored:
    """The examples in a run's memory.

    Args:
        images: ``[M, C, H, W]`` uint8, with one or three channels.
        labels: ``[M]``.
        classes: All labels, in order of arrival.
        names: The name of each label.
    """

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    classes: tuple[int, ...]
    names: tuple[str, ...]

    def name(self, label: int) -> str:
        """Return the name of a class."""
        return self.names[label] if 0 <= label < len(self.names) else str(label)


@dataclass(frozen=True)
class ClassStrip:
    """The stored images of one class, side by side.

    Args:
        name: The class.
        stored: How many there are.
        shown: How many of them are in the picture.
        width: Of the picture, in pixels of the images.
        height: The same.
        source: The picture as a data URI; empty if there are none.
    """

    name: str
    stored: int
    shown: int
    width: int
    height: int
    source: str


def strips(stored: Stored, per_class: int) -> list[ClassStrip]:
    """Return one picture for each class, of at most ``per_class`` images."""
    found = []
    for label in stored.classes:
        own = stored.images[stored.labels == label]
        picture = side_by_side(own[:per_class])
        found.append(
            ClassStrip(
                name=stored.name(label),
                stored=len(own),
                shown=min(len(own), per_class),
                width=picture.shape[1],
                height=picture.shape[0],
                source=_data_uri(picture) if picture.size else "",
            )
        )
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


def _data_uri(picture: npt.NDArray[np.uint8]) -> str:
    """Return a picture as PNG or JPEG, whichever is smaller."""
    from PIL import Image

    grey = bool((picture == picture[..., :1]).all())
    image = Image.fromarray(picture[..., 0] if grey else picture)
    png, jpeg = io.BytesIO(), io.BytesIO()
    image.save(png, format="PNG", optimize=True)
    image.save(jpeg, format="JPEG", quality=_QUALITY, subsampling=0, optimize=True)
    kind, content = min(
        (("png", png.getvalue()), ("jpeg", jpeg.getvalue())), key=lambda pair: len(pair[1])
    )
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
