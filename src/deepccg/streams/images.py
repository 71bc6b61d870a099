"""Encoded images, from wherever they come, and their pixels. Pillow is imported when used."""

import contextlib
import io
import stat
import struct
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError
from deepccg.streams.arrays import IntArray
from deepccg.streams.data import align_labels

Pixels = npt.NDArray[np.uint8]
MIXED_SIZE = (32, 32)  # what images of different sizes become, unless a size is asked for

# Pillow reads many more, some with the help of other programs: PostScript runs code.
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP", "AVIF")
MOST_PIXELS = 2**26  # of an image, encoded in however few bytes
LARGEST_FILE = 2**28  # bytes


@dataclass(frozen=True, eq=False)
class ImageSource:
    """Labelled, encoded images in a fixed order: files, or rows of a table.

    Args:
        names: The class names.
        y: ``[N]`` int64 labels.
        rows: ``[N]`` where each image is in what ``read`` reads.
        read: For ascending rows, yields where each image is (to be shown to the user) and its
            encoded bytes.
        skipped: What was left out as unreadable, to be shown to the user.
    """

    names: tuple[str, ...]
    y: IntArray
    rows: IntArray
    read: Callable[[IntArray], Iterator[tuple[str, bytes]]]
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.y)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return self.read(self.rows)

    def take(self, positions: IntArray) -> "ImageSource":
        """The images at these ascending positions."""
        return replace(self, y=self.y[positions], rows=self.rows[positions])


def concatenate(sources: Sequence[ImageSource]) -> ImageSource:
    """Join sources, one after the other; classes are matched by name and sorted."""
    names = tuple(sorted({name for source in sources for name in source.names}))
    starts = np.cumsum([0] + [len(source) for source in sources])

    def read(rows: IntArray) -> Iterator[tuple[str, bytes]]:
        for source, start in zip(sources, starts[:-1], strict=True):
            mine = rows[(rows >= start) & (rows < start + len(source))]
            yield from source.read(source.rows[mine - start])

    y = np.concatenate([align_labels(source.y, source.names, names) for source in sources])
    return ImageSource(names, y, np.arange(len(y)), read)


def common_size(source: ImageSource) -> tuple[int, int]:
    """Return the height and width that all images share, or ``MIXED_SIZE``; reads headers only."""
    sizes = set()
    for where, encoded in source:
        with _opened(where, encoded) as image:
            sizes.add((image.height, image.width))
        if len(sizes) > 1:
            return MIXED_SIZE
    return sizes.pop()


def decode(where: str, encoded: bytes, shape: tuple[int, int, int]) -> Pixels:
    """Decode one image as ``[C, H, W]``: grey for one channel, else RGB; resized to fit."""
    from PIL import Image

    channels, height, width = shape
    with _opened(where, encoded) as opened:
        image = opened.convert("L" if channels == 1 else "RGB")
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.LANCZOS)
    return np.asarray(image).reshape(height, width, channels).transpose(2, 0, 1)


def read_images(files: Sequence[Path], shape: tuple[int, int, int]) -> Pixels:
    """Read image files as ``[N, C, H, W]``, as a data set of examples of ``shape`` holds them."""
    if shape[0] not in (1, 3):
        raise InputError(f"image files become grey (1 channel) or RGB (3), not {shape[0]} channels")
    pixels = np.empty((len(files), *shape), dtype=np.uint8)
    for i, file in enumerate(files):
        pixels[i] = decode(str(file), read_file(file), shape)
    return pixels


def readable_files(files: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Divide image files into those that can be decoded to the last pixel, and the others."""
    good, bad = [], []
    for file in files:
        try:
            with _opened(str(file), read_file(file)) as image:
                image.load()
            good.append(file)
        except InputError:
            bad.append(file)
    return good, bad


def read_file(file: Path) -> bytes:
    """Return the bytes of an image file; an ``InputError`` names the file."""
    try:
        about = file.stat()
        if not stat.S_ISREG(about.st_mode):  # a device may have no end
            raise InputError(f"cannot read the image {file}: it is not a file")
        if about.st_size > LARGEST_FILE:
            raise InputError(f"cannot read the image {file}: it has over {LARGEST_FILE:,} bytes")
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the image {file}: {error.strerror}") from error


# What Pillow raises on damaged data, by format: truncated files, broken PNG chunks, bad values.
_UNREADABLE = (
    AttributeError, EOFError, IndexError, KeyError, MemoryError, OSError, OverflowError,
    RuntimeError, SyntaxError, TypeError, ValueError, struct.error, zlib.error,
)  # fmt: skip


@contextlib.contextmanager
def _opened(where: str, encoded: bytes) -> Iterator[Any]:
    """Open an image; damage that shows inside the block is an ``InputError`` that names it."""
    from PIL import Image

    try:
        with (
            warnings.catch_warnings(action="ignore"),  # errors say what is wrong
            Image.open(io.BytesIO(encoded), formats=FORMATS) as image,
        ):
            if image.width * image.height > MOST_PIXELS:
                size = f"{image.width} x {image.height} pixels, where {MOST_PIXELS:,} are allowed"
                raise InputError(f"cannot read the image {where}: {size}")
            yield image
    except InputError:
        raise
    except (*_UNREADABLE, Image.DecompressionBombError) as error:
        reason = "not an image in a known format" if "identify" in str(error) else str(error)
        raise InputError(
            f"cannot read the image {where}: {reason or type(error).__name__}"
        ) from error
