"""Labelled images from Arrow tables: which column holds images, which labels, what they mean.

Local parquet files and data sets of the hub both provide an Arrow schema, whose metadata says
which column is an image and which a class label, and an iterator over record batches.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepccg.core import InputError
from deepccg.streams.images import ImageSource, read_file
from deepccg.streams.labels import encode_labels
from deepccg.streams.stream import IntArray

_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")


@dataclass(frozen=True, eq=False)
class ArrowSource:
    """An Arrow table that is read in parts.

    Args:
        title: Its name in messages.
        schema: The ``pyarrow.Schema``, with the hub's description of the columns if there is one.
        batches: Given column names, yields record batches (or tables) in row order.
    """

    title: str
    schema: Any
    batches: Callable[[list[str]], Iterator[Any]]


@dataclass(frozen=True)
class Columns:
    """Which columns to use; None to find them by the schema."""

    image: str | None = None
    label: str | None = None


def labelled_images(table: ArrowSource, wanted: Columns) -> ImageSource:
    """Return the labelled images of a table. Labels are read now, images when needed."""
    features = _features(table.schema)
    image = _image_column(table, features, wanted.image)
    label = _label_column(table, features, wanted.label)
    values = [value for part in table.batches([label]) for value in _cells(table, part, label)]
    y, names = _encode(table, label, values, _class_names(features, label))

    def read(rows: IntArray) -> Iterator[tuple[str, bytes]]:
        start = 0
        for part in table.batches([image]):
            mine = rows[(rows >= start) & (rows < start + part.num_rows)]
            cells = _cells(table, part, image, mine - start) if len(mine) else []
            for row, cell in zip(mine, cells, strict=True):
                where = f"in row {row} of {table.title}"
                yield where, _encoded(where, cell)
            start += part.num_rows

    return ImageSource(names, y, np.arange(len(y)), read)


def _cells(table: ArrowSource, part: Any, column: str, rows: IntArray | None = None) -> list[Any]:
    """Return the values of a column in a record batch, or of some of its rows."""
    values = part.column(column)
    try:
        return list((values if rows is None else values.take(rows)).to_pylist())
    except (ValueError, OverflowError, MemoryError) as error:  # damaged bytes
        raise InputError(f"{table.title}, column '{column}' is damaged: {error}") from error


def _class_names(features: dict[str, Any], column: str) -> list[str] | None:
    feature = features.get(column)
    names = feature.get("names") if isinstance(feature, dict) else None
    plain = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if plain else None


def _features(schema: Any) -> dict[str, Any]:
    """Return the hub's description of the columns, ``{column: {"_type": ...}}``."""
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        return dict(json.loads(metadata).get("info", {}).get("features", {}))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}  # not written by the hub's tools: the columns' names and types must do


def _image_column(table: ArrowSource, features: dict[str, Any], wanted: str | None) -> str:
    if wanted is not None:
        return _existing(table, wanted, "image")
    typed = [name for name in table.schema.names if _kind(features, name) == "Image"]
    named = [name for name in table.schema.names if name.lower() in _IMAGE_NAMES]
    return _only(table, typed or named, "image", _IMAGE_NAMES)


def _label_column(table: ArrowSource, features: dict[str, Any], wanted: str | None) -> str:
    if wanted is not None:
        return _existing(table, wanted, "label")
    typed = [name for name in table.schema.names if _kind(features, name) == "ClassLabel"]
    named = [name for name in _LABEL_NAMES if name in (typed or table.schema.names)]
    return _only(table, named[:1] or typed, "label", _LABEL_NAMES)


def _kind(features: dict[str, Any], column: str) -> str | None:
    feature = features.get(column)
    return feature.get("_type") if isinstance(feature, dict) else None


def _existing(table: ArrowSource, column: str, role: str) -> str:
    if column not in table.schema.names:
        raise InputError(
            f"{table.title} has no {role} column '{column}'; its columns are "
            f"{', '.join(table.schema.names) or 'none'}"
        )
    return column


def _only(table: ArrowSource, found: Sequence[str], role: str, usual: Sequence[str]) -> str:
    if len(found) != 1:
        problem = f"several {role} columns" if found else f"no {role} column"
        raise InputError(
            f"{table.title} has {problem}; its columns are {', '.join(table.schema.names)} "
            f"(looked for one of type {role}, or named {', '.join(usual)})"
        )
    return found[0]


def _encode(
    table: ArrowSource, column: str, values: list[Any], names: Sequence[str] | None
) -> tuple[IntArray, tuple[str, ...]]:
    if not values:
        raise InputError(f"{table.title} has no rows")
    for row, value in enumerate(values):
        if value is None or value == -1:
            raise InputError(
                f"row {row} of {table.title} has no label ('{column}' is {value}): "
                f"this part cannot be learned from or scored"
            )
    try:
        return encode_labels(values, names)
    except InputError as error:
        raise InputError(f"{table.title}, column '{column}': {error}") from error


def _encoded(where: str, cell: Any) -> bytes:
    """Return the bytes of an image cell: raw, or ``{"bytes": ..., "path": ...}`` with one set."""
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, dict) and isinstance(cell.get("bytes"), bytes):
        return bytes(cell["bytes"])
    if isinstance(cell, dict) and isinstance(cell.get("path"), str):
        return read_file(Path(cell["path"]))
    raise InputError(f"the image {where} is missing: no encoded bytes")
