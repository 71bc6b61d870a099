"""The cache directory: where it is, and who may write there."""

import atexit
import contextlib
import functools
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

if sys.platform != "win32":
    import grp
    import pwd


def default_cache_dir() -> Path:
    """``$DEEPCCG_CACHE``, or ``deepccg`` in the user's cache directory.

    For a user without home, or with one that cannot be written, a directory among the temporary
    files.
    """
    try:
        if os.environ.get("DEEPCCG_CACHE"):
            return Path(os.environ["DEEPCCG_CACHE"]).expanduser()
        base = os.environ.get("XDG_CACHE_HOME")
        directory = (Path(base) if base else Path.home() / ".cache") / "deepccg"
    except RuntimeError:  # there is no home
        return _temporary_cache()
    return directory if _is_usable(directory) else _temporary_cache()


def _is_usable(directory: Path) -> bool:
    """Whether the directory can be read, or made."""
    if os.access(directory, os.F_OK):
        return os.access(directory, os.R_OK | os.X_OK)
    above = next((place for place in directory.parents if os.access(place, os.F_OK)), directory)
    return os.access(above, os.W_OK | os.X_OK)


@functools.cache
def _temporary_cache() -> Path:
    """A directory of this user among the temporary files, the same for the next process.

    If somebody else has taken its name, another one that is removed at the end.
    """
    try:
        base = Path(tempfile.gettempdir()).resolve()
        own = base / f"deepccg-{'user' if sys.platform == 'win32' else os.geteuid()}"
        with contextlib.suppress(OSError):
            own.mkdir(mode=0o700, exist_ok=True)
            if untrusted_reason(own) is None:
                return own
        other = Path(tempfile.mkdtemp(prefix="deepccg-", dir=base))
        atexit.register(shutil.rmtree, other, ignore_errors=True)
    except OSError:
        return Path(os.devnull, "deepccg")  # nothing can be kept there, and whoever tries is told
    return other


def make_directory(directory: Path) -> None:
    """Make the directory and those above it, for nobody else to write, whatever the umask is."""
    for place in (*reversed(directory.parents), directory):
        if not place.is_dir():
            place.mkdir(mode=0o755, exist_ok=True)


def untrusted_reason(path: Path) -> str | None:
    """Say why code at a resolved path may be somebody else's, and what to do; ``None`` if not.

    The strictness of ssh: the file and all directories above it, up to the user's home, belong to
    the user or to root, and nobody else may write there. Only above, a directory like ``/tmp``
    will do, where nobody can replace what is another's.
    """
    if sys.platform == "win32":
        return None
    for place in (path, *_directories_above(path)):
        about = place.lstat()
        if about.st_uid not in (0, os.geteuid()):
            fault, remedy = f"belongs to another user ({about.st_uid})", "remove it"
        elif _others_write(about) and (place == path or not about.st_mode & stat.S_ISVTX):
            fault, remedy = "can be written by others", f"run chmod go-w {place}"
        else:
            continue
        return f"{place} {fault}: {remedy}, or set DEEPCCG_CACHE to a directory of your own"
    return None


def _directories_above(path: Path) -> list[Path]:
    above = list(path.parents)
    with contextlib.suppress(RuntimeError, OSError, ValueError):  # no home, or not above
        del above[above.index(Path.home().resolve()) + 1 :]
    return above


def _others_write(about: os.stat_result) -> bool:
    """Whether anybody but the owner may write; a group that only the owner is in does not count."""
    if about.st_mode & stat.S_IWOTH or not about.st_mode & stat.S_IWGRP:
        return bool(about.st_mode & stat.S_IWOTH)
    try:
        owner, group = pwd.getpwuid(about.st_uid).pw_name, grp.getgrgid(about.st_gid)
    except KeyError:
        return True
    return group.gr_name != owner or not set(group.gr_mem) <= {owner}
