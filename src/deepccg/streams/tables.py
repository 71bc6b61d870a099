"""Tables of encoded images, as the public hub stores them: which columns, which labels.

Local parquet files and data sets of the hub both come down to an Arrow schema, whose metadata
says which column is an image and which a class label, and an iterator over record batches.
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
class Table:
    """An Arrow table, read in parts.

    Args:
        title: How to call it in messages.
        schema: The ``pyarrow.Schema``, with the hub's description of the columns if there is one.
        batches: Given column names, yields record batches (or tables) in row order.
    """

    title: str
    schema: Any
    batches: Callable[[list[str]], Iterator[Any]]


@dataclass(frozen=True)
class Columns:
    """Which columns to use; None where that is to be found out."""

    image: str | None = None
    label: str | None = None


def table_source(table: Table, wanted: Columns) -> ImageSource:
    """The labelled images of a table. Reads the labels now and the images when asked."""
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


def _cells(table: Table, part: Any, column: str, rows: IntArray | None = None) -> list[Any]:
    """The values of a column in a record batch, or of some of its rows."""
    values = part.column(column)
    try:
        return list((values if rows is None else values.take(rows)).to_pylist())
    except (ValueError, OverflowError, MemoryError) as error:  # what bytes should not say
        raise InputError(f"{table.title}, column '{column}' is damaged: {error}") from error


def _class_names(features: dict[str, Any], column: str) -> list[str] | None:
    feature = features.get(column)
    names = feature.get("names") if isinstance(feature, dict) else None
    plain = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if plain else None


def _features(schema: Any) -> dict[str, Any]:
    """The hub's own description of the columns, ``{column: {"_type": ...}}``."""
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        return dict(json.loads(metadata).get("info", {}).get("features", {}))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}  # not written by the hub's tools: the columns' names and types must do


def _image_column(table: Table, features: dict[str, Any], wanted: str | None) -> str:
    if wanted is not None:
        return _existing(table, wanted, "image")
    typed = [name for name in table.schema.names if _kind(features, name) == "Image"]
    named = [name for name in table.schema.names if name.lower() in _IMAGE_NAMES]
    return _only(table, typed or named, "image", _IMAGE_NAMES)


def _label_column(table: Table, features: dict[str, Any], wanted: str | None) -> str:
    if wanted is not None:
        return _existing(table, wanted, "label")
    typed = [name for name in table.schema.names if _kind(features, name) == "ClassLabel"]
    named = [name for name in _LABEL_NAMES if name in (typed or table.schema.names)]
    return _only(table, named[:1] or typed, "label", _LABEL_NAMES)


def _kind(features: dict[str, Any], column: str) -> str | None:
    feature = features.get(column)
    return feature.get("_type") if isinstance(feature, dict) else None


def _existing(table: Table, column: str, role: str) -> str:
    if column not in table.schema.names:
        raise InputError(
            f"{table.title} has no {role} column '{column}'; its columns are "
            f"{', '.join(table.schema.names) or 'none'}"
        )
    return column


def _only(table: Table, found: Sequence[str], role: str, usual: Sequence[str]) -> str:
    if len(found) != 1:
        problem = f"several {role} columns" if found else f"no {role} column"
        raise InputError(
            f"{table.title} has {problem}; its columns are {', '.join(table.schema.names)} "
            f"(looked for one of type {role}, or named {', '.join(usual)})"
        )
    return found[0]


def _encode(
    table: Table, column: str, values: list[Any], names: Sequence[str] | None
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
    """The bytes of an image cell: raw, or ``{"bytes": ..., "path": ...}`` with one of the two."""
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, dict) and isinstance(cell.get("bytes"), bytes):
        return bytes(cell["bytes"])
    if isinstance(cell, dict) and isinstance(cell.get("path"), str):
        return read_file(Path(cell["path"]))
    raise InputError(f"the image {where} is missing: no encoded bytes")


_BATCH_ROWS = 256  # images are up to some hundred kB each


def parquet_folder(data_dir: Path, folders: Sequence[str]) -> Path | None:
    """Where the parquet files of a data set are: the first place that has a training part.

    All parts are then taken from there, so that parts of two data sets never get mixed.

    Args:
        data_dir: The directory the user named; last in turn, as it may hold several data sets.
        folders: Sub-directories that may hold the files.
    """
    if not data_dir.is_dir():
        raise InputError(f"there is no data directory {data_dir}")
    places = (data_dir / folder for folder in (*folders, ""))
    return next((place for place in places if parquet_part(place, ("train",))), None)


def parquet_part(folder: Path, names: Sequence[str]) -> list[Path]:
    """The files of the first of ``names`` that is there, as ``train.parquet`` or in shards."""
    shards = (sorted(folder.glob(f"{name}*.parquet")) for name in names)
    return next((files for files in shards if files), [])


def parquet_table(files: Sequence[Path]) -> Table:
    """The rows of these files, one file after the other."""
    title = files[0].name if len(files) == 1 else f"{files[0].name} (and {len(files) - 1} more)"

    def batches(columns: list[str]) -> Iterator[Any]:
        for file in files:
            yield from _file_batches(file, columns)

    return Table(title, _open(files[0]).schema_arrow, batches)


def _open(file: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        opened = pyarrow.parquet.ParquetFile(file)
        _ = opened.schema_arrow.names  # damaged ones show here
        return opened
    except (OSError, ValueError, MemoryError, pyarrow.ArrowException) as error:
        raise _damaged(file, error) from error


def _file_batches(file: Path, columns: list[str]) -> Iterator[Any]:
    import pyarrow

    opened = _open(file)
    missing = [column for column in columns if column not in opened.schema_arrow.names]
    if missing:
        raise InputError(f"{file} has no column '{missing[0]}'")
    remaining = opened.iter_batches(batch_size=_BATCH_ROWS, columns=columns)
    while True:
        try:
            batch = next(remaining, None)
        except (OSError, ValueError, MemoryError, pyarrow.ArrowException) as error:
            raise _damaged(file, error) from error
        if batch is None:
            return
        yield batch


def _damaged(file: Path, error: BaseException) -> InputError:
    reason = str(error).partition("\n")[0].rstrip(".")
    return InputError(f"{file} is not a whole parquet file (truncated or damaged?): {reason}")


def hub_tables(repository: str, config: str | None, parts: Sequence[Sequence[str]]) -> list[Table]:
    """Parts of a data set.

    Args:
        repository: ``owner/name``.
        config: Which configuration of the data set; None for its only one.
        parts: For each table, the names that the part may have, the preferred one first.
    """
    found = _load(repository, config)
    tables = []
    for alternatives in parts:
        part = next((part for part in alternatives if part in found), None)
        if part is None:
            raise InputError(
                f"the hub data set {repository} has no {alternatives[0]} part; "
                f"it has {', '.join(found)}"
            )
        tables.append(_table(f"{repository} ({part})", found[part]))
    return tables


def _table(title: str, dataset: Any) -> Table:
    def batches(columns: list[str]) -> Iterator[Any]:
        # In Arrow format an image column stays encoded; decoding is the same for every source.
        selected = dataset.select_columns(columns).with_format("arrow")
        yield from selected.iter(batch_size=_BATCH_ROWS)

    return Table(title, dataset.features.arrow_schema, batches)


def _load(repository: str, config: str | None) -> Any:
    import datasets

    try:
        return datasets.load_dataset(repository, config)
    except ConnectionError as error:
        raise InputError(
            f"the hub is not reachable, so {repository} cannot be downloaded; give a directory "
            f"with its parquet files: --data-dir DATA"
        ) from error
    except datasets.exceptions.DatasetNotFoundError as error:
        raise InputError(
            f"the hub has no data set {repository} that is open to everyone"
        ) from error
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"the hub data set {repository} cannot be loaded: {reason}") from error
