"""Decoded images on disk: written once, then memory-mapped. Nothing here needs Pillow.

A directory per data set, source and part holds ``x.npy`` (uint8 ``[N, C, H, W]``), ``y.npy``,
``rows.npy`` (which images of the source they are: the stored split) and ``meta.json``. It is
written beside its place and renamed, so it is there whole or not at all, also when several
processes decode the same data at once; what a killed process left is removed by the next. A file of
another size or content than was written is no entry; its content is looked at only when its time of
change is another, too.
"""

import contextlib
import hashlib
import json
import logging
import math
import os
import re
import time
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from deepccg.atomic import temporary_directory
from deepccg.core import InputError
from deepccg.core.cache_dir import make_directory
from deepccg.streams.arrays import Array, IntArray
from deepccg.streams.decoding import decode_all
from deepccg.streams.images import ImageSource

_ARRAYS = ("x", "y", "rows")
# What damaged JSON and damaged arrays make their readers raise.
_UNREADABLE = (
    EOFError, KeyError, MemoryError, OSError, OverflowError, RecursionError, SyntaxError, TypeError,
    ValueError, tokenize.TokenError,
)  # fmt: skip
_TELL_SECONDS = 5.0  # between two lines of progress
_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Entry:
    """One decoded part of a data set."""

    names: tuple[str, ...]
    x: Array
    y: IntArray
    rows: IntArray
    skipped: tuple[str, ...] = ()  # what was left out as unreadable


def safe_name(name: str) -> str:
    """A directory name for a data set's name.

    >>> safe_name("hf:owner/name")
    'hf-owner-name'
    """
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"


def read_entry(directory: Path) -> Entry | None:
    """Return the entry, memory-mapped; None if it is missing, damaged, or something else."""
    try:
        meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
        arrays = {key: _map_array(directory / f"{key}.npy", meta["arrays"][key]) for key in _ARRAYS}
        skipped = tuple(map(str, meta.get("skipped", ())))
        entry = Entry(tuple(meta["names"]), **arrays, skipped=skipped)
        return entry if _sound(entry) else None
    except _UNREADABLE:
        return None


def write_entry(directory: Path, source: ImageSource, image_size: tuple[int, int]) -> Entry:
    """Decode all images into ``directory``, or use what another process has put there first."""
    _log.info("decoding %s images into %s", f"{len(source):,}", directory)
    try:
        make_directory(directory.parent)
        with temporary_directory(directory, 0o700) as scratch:
            _write_files(scratch, source, image_size)
            _move_into_place(scratch, directory)
    except OSError as error:
        raise InputError(
            f"cannot write the cache {directory}: {error.strerror}; "
            f"choose another place with DEEPCCG_CACHE"
        ) from error
    entry = read_entry(directory)
    if entry is None:
        raise InputError(f"the cache {directory} cannot be read back: delete it and try again")
    return entry


def _map_array(file: Path, expected: dict[str, Any]) -> Array:
    about = file.stat()
    if about.st_size != expected["bytes"]:
        raise ValueError(f"{file} was truncated")
    if about.st_mtime_ns != expected.get("mtime_ns", about.st_mtime_ns):  # not in older entries
        if _digest(file) != expected["digest"]:
            raise ValueError(f"{file} was changed")
        with contextlib.suppress(OSError):  # copied: the next look is cheap again
            os.utime(file, ns=(about.st_atime_ns, expected["mtime_ns"]))
    # A plain view: indexing np.memmap itself is slow, and it would carry the file's path around.
    array = np.asarray(np.load(file, mmap_mode="r", allow_pickle=False))
    if list(array.shape) != expected["shape"] or array.dtype.str != expected["dtype"]:
        raise ValueError(f"{file} holds another array")
    return array


def _sound(entry: Entry) -> bool:
    """Whether the arrays are what ``write_entry`` makes and fit together."""
    x, y, rows = entry.x, entry.y, entry.rows
    labels = y.shape == rows.shape == (len(x),) and y.dtype == rows.dtype == np.int64
    names = all(isinstance(name, str) for name in entry.names)
    if not (x.ndim == 4 and x.dtype == np.uint8 and labels and names and len(y)):
        return False
    return 0 <= int(y.min()) <= int(y.max()) < len(entry.names)


def _write_files(directory: Path, source: ImageSource, image_size: tuple[int, int]) -> None:
    shape = (3, *image_size)
    with _synced(directory / "x.npy") as file:
        # Appended row by row, not memory-mapped: a full disk is then an error, not a crash.
        header = {"descr": "|u1", "fortran_order": False, "shape": (len(source), *shape)}
        np.lib.format.write_array_header_1_0(file, header)
        _write_pixels(file, source, shape)
    for key, values in (("y", source.y), ("rows", source.rows)):
        with _synced(directory / f"{key}.npy") as file:
            np.save(file, values.astype("<i8"), allow_pickle=False)
    arrays = {key: _describe(directory / f"{key}.npy") for key in _ARRAYS}
    with _synced(directory / "meta.json") as file:
        meta = {"names": list(source.names), "arrays": arrays, "skipped": list(source.skipped)}
        file.write(json.dumps(meta).encode())


def _write_pixels(file: IO[bytes], source: ImageSource, shape: tuple[int, int, int]) -> None:
    """Write the pixels of all images, and say now and then how far it got."""
    written, told = 0, time.monotonic()
    for pixels in decode_all(source, shape):
        written += file.write(pixels)
        if time.monotonic() - told > _TELL_SECONDS:
            told = time.monotonic()
            _log.info(
                "decoded %s of %s images", f"{written // math.prod(shape):,}", f"{len(source):,}"
            )


def _describe(file: Path) -> dict[str, Any]:
    array = np.load(file, mmap_mode="r", allow_pickle=False)
    about = file.stat()
    return {
        "shape": list(array.shape),
        "dtype": array.dtype.str,
        "bytes": about.st_size,
        "mtime_ns": about.st_mtime_ns,
        "digest": _digest(file),
    }


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


@contextlib.contextmanager
def _synced(file: Path) -> Iterator[IO[bytes]]:
    """Open for writing; the bytes are on disk when it closes."""
    with file.open("wb") as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())


def _move_into_place(scratch: Path, directory: Path) -> None:
    if directory.exists() and read_entry(directory) is None:
        # A damaged entry is renamed first, so that nobody sees it half removed.
        with temporary_directory(directory) as grave, contextlib.suppress(OSError):
            directory.rename(grave / "damaged")  # unless another process has discarded it
    try:
        scratch.rename(directory)
    except OSError:
        if read_entry(directory) is None:  # not simply another process that was first
            raise
