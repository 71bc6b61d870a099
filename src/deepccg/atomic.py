"""Files and directories that are there whole or not at all.

They are written beside their place, under a random name, and renamed. Each is locked until then, so
that two writers never share one, and what a killed writer left is known by its lock being free. No
clock and no process number is asked.
"""

import contextlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from io import FileIO
from pathlib import Path

if os.name == "posix":
    import fcntl

_RANDOM = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
_NUMBERED = re.compile(r"\..+\.\d+\.tmp")  # as earlier versions named them, without a lock
_NAME_LETTERS = 50  # of the target, in the name of a temporary: names have up to 255 bytes


def write_atomically(
    path: str | os.PathLike[str], content: bytes, previous: Path | None = None
) -> None:
    """Replace ``path`` by ``content``; a reader, or a crash, sees the old file or the new one.

    With ``previous`` the old file is kept under that name. Between the two renames it has only
    that name, so a reader that misses ``path`` looks there. Several threads and processes may
    write to one path: the last one wins. What killed ones left is removed first.

    Raises:
        OSError: If that fails; it names ``path``, or a directory that cannot be made.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with naming(target):
        _remove_leftovers(target.parent, _prefix(target))
        while not _replaced(target, content, previous):
            pass
        if os.name == "posix":  # elsewhere a directory cannot be opened
            _sync_directory(target.parent)


def _replaced(target: Path, content: bytes, previous: Path | None) -> bool:
    """Write and rename; ``False`` if the temporary was removed before it could be locked."""
    temporary = _temporary_name(target)
    # "x" is O_CREAT | O_EXCL: neither a file nor a link that is there already is opened.
    with temporary.open("xb", buffering=0) as file, _lock(temporary) as held:
        if held is False:
            return False
        try:
            write_durably(file, content)
            file.close()  # Windows renames no open file
            if previous is not None and target.exists():
                target.replace(previous)
            temporary.replace(target)
        finally:
            _remove(temporary)
    return True


@contextlib.contextmanager
def temporary_directory(target: Path, mode: int = 0o777) -> Iterator[Path]:
    """Make a directory beside ``target``, to be filled and renamed; else it is removed at the end.

    What killed processes left beside ``target``, for whatever name, is removed first.
    """
    _remove_leftovers(target.parent, ".")
    while True:
        temporary = _temporary_name(target)
        temporary.mkdir(mode)
        with _lock(temporary) as held:
            if held is False:  # removed before it could be locked
                continue
            try:
                yield temporary
            finally:
                _remove(temporary)
            return


def write_durably(file: FileIO, content: bytes) -> None:
    """Write all of ``content`` and wait until the disk has it."""
    rest = memoryview(content)
    while rest:  # a disk that fills up takes a part first
        rest = rest[os.write(file.fileno(), rest) :]
    os.fsync(file.fileno())


@contextlib.contextmanager
def naming(path: Path) -> Iterator[None]:
    """Make errors name the file that is meant, instead of a temporary or none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


def is_temporary(path: Path) -> bool:
    """Whether ``write_atomically`` makes files of this name and removes them."""
    return any(pattern.fullmatch(path.name) for pattern in (_RANDOM, _NUMBERED))


def remove_temporaries(directory: Path) -> None:
    """Remove what killed processes left. Nobody may be writing there."""
    for file in directory.iterdir():
        if is_temporary(file):
            _remove(file)


def _temporary_name(target: Path) -> Path:
    return target.with_name(f"{_prefix(target)}{secrets.token_hex(8)}.tmp")


def _prefix(target: Path) -> str:
    return f".{target.name[:_NAME_LETTERS]}."


def _remove_leftovers(directory: Path, prefix: str) -> None:
    """Remove temporaries whose writers are dead."""
    # A directory may be writable and not readable.
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        names = [each.name for each in entries if each.name.startswith(prefix)]
        for leftover in (directory / name for name in names if _RANDOM.fullmatch(name)):
            with _lock(leftover) as held:
                if held:
                    _remove(leftover)


@contextlib.contextmanager
def _lock(temporary: Path) -> Iterator[bool | None]:
    """Hold the lock of a file or directory; it goes with a killed process.

    Yields ``True``; ``False`` if another holds it, or removed the file; ``None`` where there are no
    locks. A lock belongs to what was opened here, so threads exclude each other as processes do.
    """
    if os.name != "posix":
        yield None
        return
    # A network file system locks only what may be written; a directory can only be read.
    access = os.O_RDONLY if temporary.is_dir() else os.O_RDWR
    try:
        descriptor = os.open(temporary, access | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        yield False if isinstance(error, FileNotFoundError) else None
        return
    try:
        yield _try_lock(descriptor) and temporary.exists()
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool | None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _remove(path: Path) -> None:
    """Remove a file or directory, if it can be."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


def _sync_directory(path: Path) -> None:
    """Make the new name itself durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
