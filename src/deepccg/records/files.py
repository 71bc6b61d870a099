"""Files that a stranger may have put there: regular ones only. And small JSON and TOML files."""

import contextlib
import json
import os
import stat
import tomllib
from io import FileIO
from pathlib import Path
from typing import Any

from deepccg.atomic import naming, write_durably
from deepccg.records.schema import RecordError

_LARGEST_FILE = 1 << 20  # bytes that are read; an audit or a configuration has about a thousand


def open_regular(
    path: Path, *, append: bool = False, largest: int | None = None, links: bool = False
) -> FileIO:
    """Open a regular file for reading, or for adding to its end. Never waits.

    A run directory may come from somebody else. A pipe in it would wait for ever, a device give
    bytes without end, a link lead outside.

    Args:
        path: The file; with ``append`` it is made if it is not there.
        append: Whether to write.
        largest: How many bytes it may have.
        links: Whether it may be a link: one that the user named, not one in a run directory.

    Raises:
        OSError: If it cannot be opened.
        RecordError: If it is something else, or too large.
    """
    check_regular(path, largest=largest, links=links)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT if append else os.O_RDONLY
    if os.name == "posix":  # what was checked may be another file by now
        flags |= os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    else:
        flags |= getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, 0o666)
    try:
        _check_status(path, os.fstat(descriptor), largest)
        return FileIO(descriptor, "ab" if append else "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_regular(path: Path, *, largest: int | None = None, links: bool = False) -> None:
    """Refuse anything but a regular file, or nothing; see ``open_regular``."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        _check_status(path, path.stat(follow_symlinks=links), largest)


def _check_status(path: Path, status: os.stat_result, largest: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise RecordError(
            f"{path} is not a regular file (a link, pipe, device or directory): put the file "
            f"itself there"
        )
    if largest is not None and status.st_size > largest:
        raise RecordError(f"{path} has {status.st_size:,} bytes, more than {largest:,}")


def read_regular(path: Path, largest: int, *, links: bool = False) -> bytes:
    """Return the content of a regular file; see ``open_regular``."""
    with open_regular(path, largest=largest, links=links) as file:
        return file.readall()


def append_durably(path: Path, content: bytes) -> None:
    """Add to the end of a regular file; if that fails, it is as it was."""
    with naming(path), open_regular(path, append=True) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            write_durably(file, content)
        except OSError:  # a full disk may have taken a part
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return a JSON object, or ``None`` if the file holds none: old runs lack some files."""
    try:
        value = json.loads(read_regular(Path(path), _LARGEST_FILE))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_recorded_toml(path: Path) -> dict[str, Any]:
    """Return the values of a TOML file of a run directory; a ``RecordError`` if that fails."""
    try:
        return parse_toml(read_regular(path, _LARGEST_FILE).decode())
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    except RecordError:
        raise
    except ValueError as error:
        raise RecordError(f"{path} is not valid TOML: {error}") from error


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the values of a TOML file of the user's own, which may be a link or a pipe.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is too large, or not valid.
    """
    with Path(path).open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"it has more than {_LARGEST_FILE:,} bytes")
    return parse_toml(content.decode())


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text, or raise a ``ValueError``.

    >>> parse_toml("a = " + "[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
