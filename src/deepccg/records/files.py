"""Files that are either the old one or the new one; small JSON and TOML files; nested settings."""

import json
import os
import re
import tomllib
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any

_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")
_LARGEST_FILE = 1 << 20  # bytes that are read; an audit or a configuration has about a thousand


def write_atomically(
    path: str | os.PathLike[str], content: bytes, previous: Path | None = None
) -> None:
    """Replace ``path`` by ``content``; a reader, or a crash, sees the old file or the new one.

    With ``previous`` the old file is kept under that name. Between the two renames it has only
    that name, so a reader that misses ``path`` looks there.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb", buffering=0) as file:
            write_durably(file, content)
        if previous is not None and target.exists():
            target.replace(previous)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
    if os.name == "posix":  # elsewhere a directory cannot be opened
        _sync_directory(target.parent)


def write_durably(file: FileIO, content: bytes) -> None:
    """Write all of ``content`` and wait until the disk has it."""
    rest = memoryview(content)
    while rest:  # a disk that fills up takes a part first
        rest = rest[os.write(file.fileno(), rest) :]
    os.fsync(file.fileno())


def is_temporary(path: Path) -> bool:
    """Whether ``write_atomically`` makes files of this name and removes them."""
    return _TEMPORARY.fullmatch(path.name) is not None


def remove_temporaries(directory: Path) -> None:
    """Remove what killed processes left. Nobody may be writing there."""
    for file in directory.iterdir():
        if is_temporary(file):
            file.unlink(missing_ok=True)


def _sync_directory(path: Path) -> None:
    """Make the new name itself durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_json_object(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return a JSON object, or ``None`` if the file holds none: old runs lack some files."""
    try:
        value = json.loads(_read_small(path))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the values of a TOML file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is too large, or not valid.
    """
    return parse_toml(_read_small(path).decode())


def _read_small(path: str | os.PathLike[str]) -> bytes:
    with Path(path).open("rb") as file:
        content = file.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise ValueError(f"it has more than {_LARGEST_FILE:,} bytes")
    return content


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


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested settings by their dotted names.

    >>> flatten({"seed": 0, "method": {"name": "er", "lr": 0.1}})
    {'seed': 0, 'method.name': 'er', 'method.lr': 0.1}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return flat


def unflatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted names as nested tables, the inverse of ``flatten``; also takes tables.

    >>> unflatten({"seed": 0, "method": {"name": "er", "lr": 0.1}, "method.lr": 0.2})
    {'seed': 0, 'method': {'name': 'er', 'lr': 0.2}}
    """
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        first, *inner = key.split(".")
        for part in reversed(inner):
            value = {part: value}
        nested = merge(nested, {first: value})
    return nested


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; where both have a value, ``over`` wins.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        result[key] = value
    return result
