"""Reading TOML that somebody else may have written."""

import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

LARGEST_FILE = 1 << 20  # bytes; a configuration has about a thousand


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The values of a TOML file.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is too large, or not valid.
    """
    with Path(path).open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise ValueError(f"it has more than {LARGEST_FILE:,} bytes")
    return parse_toml(content.decode())


def parse_toml(text: str) -> dict[str, Any]:
    """The values of a TOML text, or a ``ValueError``.

    >>> parse_toml("a = " + "[" * 100_000)
    Traceback (most recent call last):
    ValueError: it is nested too deeply
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dotted(table: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The values of nested tables by their dotted names.

    >>> dict(dotted({"seed": 0, "method": {"name": "er"}}))
    {'seed': 0, 'method.name': 'er'}
    """
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from dotted(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
