"""Labelled images from Arrow tables: parquet files on this machine, or those of the public hub.

Both have an Arrow schema, whose metadata says which column is an image and which a class label, and
an iterator over record batches.
"""

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from deepccg.core import InputError
from deepccg.streams.arrays import IntArray
from deepccg.streams.data import encode_labels
from deepccg.streams.images import ImageSource, read_file

Columns = tuple[str, str]  # names of the image and the label column

_IMAGE_NAMES = ("image", "img")
_LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")
_BATCH_ROWS = 256  # images are up to some hundred kB each


@dataclass(frozen=True, eq=False)
class ArrowSource:
    """An Arrow table that is read in parts.

    Args:
        title: Its name in messages.
        schema: The ``pyarrow.Schema``, with the hub's description of the columns if there is one.
        batches: Given column names, yields record batches (or tables) in row order.
        folders: Where the files lie that image cells may name.
    """

    title: str
    schema: Any
    batches: Callable[[list[str]], Iterator[Any]]
    folders: tuple[Path, ...] = ()


def labelled_images(table: ArrowSource, columns: Columns | None = None) -> ImageSource:
    """Return the labelled images of a table. Labels are read now, images when needed.

    Without ``columns`` they are found by the schema.
    """
    features = _features(table.schema)
    image, label = columns or (None, None)
    image = _image_column(table, features, image)
    label = _label_column(table, features, label)
    values = [value for part in table.batches([label]) for value in _cells(table, part, label)]
    y, names = _encode(table, label, values, features.get(label, {}).get("names"))

    def read(rows: IntArray) -> Iterator[tuple[str, bytes]]:
        start = 0
        for part in table.batches([image]):
            mine = rows[(rows >= start) & (rows < start + part.num_rows)]
            cells = _cells(table, part, image, mine - start) if len(mine) else []
            for row, cell in zip(mine, cells, strict=True):
                where = f"in row {row} of {table.title}"
                yield where, _encoded(where, cell, table.folders)
            start += part.num_rows

    return ImageSource(names, y, np.arange(len(y)), read)


def _cells(table: ArrowSource, part: Any, column: str, rows: IntArray | None = None) -> list[Any]:
    """Return the values of a column in a record batch, or of some of its rows."""
    values = part.column(column)
    try:
        return list((values if rows is None else values.take(rows)).to_pylist())
    except (ValueError, OverflowError, MemoryError) as error:  # damaged bytes
        raise InputError(f"{table.title}, column '{column}' is damaged: {error}") from error


def _features(schema: Any) -> dict[str, dict[str, Any]]:
    """Return the hub's description of the columns, ``{column: {"_type": ...}}``."""
    metadata = (schema.metadata or {}).get(b"huggingface", b"{}")
    try:
        features = dict(json.loads(metadata).get("info", {}).get("features", {}))
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {}  # not written by the hub's tools: the columns' names and types must do
    return {column: each for column, each in features.items() if isinstance(each, dict)}


def _image_column(table: ArrowSource, features: dict[str, Any], wanted: str | None) -> str:
    typed = _of_type(table, features, "Image")
    named = [name for name in table.schema.names if name.lower() in _IMAGE_NAMES]
    return _only(table, wanted, typed or named, "image", _IMAGE_NAMES)


def _label_column(table: ArrowSource, features: dict[str, Any], wanted: str | None) -> str:
    typed = _of_type(table, features, "ClassLabel")
    named = [name for name in _LABEL_NAMES if name in (typed or table.schema.names)]
    return _only(table, wanted, named[:1] or typed, "label", _LABEL_NAMES)


def _of_type(table: ArrowSource, features: dict[str, Any], kind: str) -> list[str]:
    return [name for name in table.schema.names if features.get(name, {}).get("_type") == kind]


def _only(
    table: ArrowSource, wanted: str | None, found: Sequence[str], role: str, usual: Sequence[str]
) -> str:
    """Return the column asked for, or the only one found."""
    columns = f"its columns are {', '.join(table.schema.names) or 'none'}"
    if wanted is not None and wanted not in table.schema.names:
        raise InputError(f"{table.title} has no {role} column '{wanted}'; {columns}")
    if wanted is None and len(found) != 1:
        problem = f"several {role} columns" if found else f"no {role} column"
        raise InputError(
            f"{table.title} has {problem}; {columns} "
            f"(looked for one of type {role}, or named {', '.join(usual)})"
        )
    chosen = wanted or found[0]
    _require_once(table.title, table.schema, chosen)
    return chosen


def _require_once(title: object, schema: Any, column: str) -> None:
    count = schema.names.count(column)
    if count == 0:
        raise InputError(f"{title} has no column '{column}'")
    if count > 1:
        raise InputError(f"{title} has {count} columns '{column}': remove or rename all but one")


def _encode(
    table: ArrowSource, column: str, values: list[Any], names: Any
) -> tuple[IntArray, tuple[str, ...]]:
    if not values:
        raise InputError(f"{table.title} has no rows")
    for row, value in enumerate(values):
        if value is None or value == -1:
            raise InputError(
                f"row {row} of {table.title} has no label ('{column}' is {value}): "
                f"this part cannot be learned from or scored"
            )
    plain = isinstance(names, list) and all(isinstance(name, str) for name in names)
    try:
        return encode_labels(values, names if plain else None)
    except InputError as error:
        raise InputError(f"{table.title}, column '{column}': {error}") from error


def _encoded(where: str, cell: Any, folders: Sequence[Path]) -> bytes:
    """Return the bytes of an image cell: raw, or ``{"bytes": ..., "path": ...}`` with one set."""
    if isinstance(cell, bytes):
        return cell
    if isinstance(cell, dict) and isinstance(cell.get("bytes"), bytes):
        return bytes(cell["bytes"])
    if isinstance(cell, dict) and isinstance(cell.get("path"), str):
        return read_file(_file_within(where, cell["path"], folders))
    raise InputError(f"the image {where} is missing: no encoded bytes")


def _file_within(where: str, path: str, folders: Sequence[Path]) -> Path:
    """Return the file that a cell names; whoever made the table must not choose any other."""
    for folder in folders:
        with contextlib.suppress(OSError, RuntimeError, ValueError):  # no name, or a loop of links
            file = (folder / path).resolve()
            if any(file.is_relative_to(own.resolve()) for own in folders) and file.exists():
                return file
    raise InputError(
        f"the image {where} is the file {path}, which is not in {folders[-1]}: "
        f"put it there, or its bytes into the table"
    )


def parquet_folder(data_dir: Path, folders: Sequence[str]) -> Path | None:
    """Return the first of ``folders`` within ``data_dir`` with a training part, or None.

    All parts are then read from there, so that parts of two data sets never get mixed. The
    directory itself comes last, as it may hold several data sets.
    """
    if not data_dir.is_dir():
        raise InputError(f"there is no data directory {data_dir}")
    places = (data_dir / folder for folder in (*folders, ""))
    return next((place for place in places if parquet_part(place, ("train",))), None)


def parquet_part(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of the first of ``names`` that exists, one file or several shards."""
    shards = (sorted(folder.glob(f"{name}*.parquet")) for name in names)
    return next((files for files in shards if files), [])


def parquet_table(files: Sequence[Path], data_dir: Path) -> ArrowSource:
    """Return the rows of these files, one file after the other.

    Image files that they name lie beside them or somewhere in ``data_dir``.
    """
    _require_hub_extra("reading parquet files")
    title = files[0].name if len(files) == 1 else f"{files[0].name} (and {len(files) - 1} more)"

    def batches(columns: list[str]) -> Iterator[Any]:
        for file in files:
            with _opened(file) as opened:
                for name in columns:
                    _require_once(file, opened.schema_arrow, name)
                yield from opened.iter_batches(batch_size=_BATCH_ROWS, columns=columns)

    with _opened(files[0]) as first:
        return ArrowSource(title, first.schema_arrow, batches, (files[0].parent, data_dir))


@contextlib.contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """Open a parquet file; damage that shows inside the block is an ``InputError`` naming it."""
    import pyarrow
    import pyarrow.parquet

    try:
        opened = pyarrow.parquet.ParquetFile(file)
        _ = opened.schema_arrow.names  # damaged ones show here
        yield opened
    except InputError:
        raise
    except (OSError, ValueError, MemoryError, pyarrow.ArrowException) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        raise InputError(
            f"{file} is not a whole parquet file (truncated or damaged?): {reason}"
        ) from error


def _require_hub_extra(use: str) -> None:
    if any(importlib.util.find_spec(name) is None for name in ("datasets", "pyarrow")):
        raise InputError(f"{use} needs datasets and pyarrow: pip install 'deepccg[hub]'")


def hub_tables(
    repository: str, config: str | None, parts: Sequence[Sequence[str]]
) -> list[ArrowSource]:
    """Return parts of a data set of the public hub.

    Args:
        repository: ``owner/name``.
        config: Which configuration of the data set; None for its only one.
        parts: For each table, the names that the part may have, the preferred one first.
    """
    _require_hub_extra(f"loading {repository} from the hub")
    found = _download(repository, config)
    tables = []
    for alternatives in parts:
        part = next((part for part in alternatives if part in found), None)
        if part is None:
            raise InputError(
                f"the hub data set {repository} has no {alternatives[0]} part; "
                f"it has {', '.join(found)}"
            )
        tables.append(_hub_table(repository, part, found[part]))
    return tables


def _hub_table(repository: str, part: str, dataset: Any) -> ArrowSource:
    import datasets
    import huggingface_hub.constants

    def batches(columns: list[str]) -> Iterator[Any]:
        # In Arrow format an image column stays encoded; decoding is the same for every source.
        selected = dataset.select_columns(columns).with_format("arrow")
        yield from selected.iter(batch_size=_BATCH_ROWS)

    # Cells of a repository of image files name what was downloaded, or, as the library looks here
    # first, what lies in a folder of its name.
    hub = huggingface_hub.constants.HF_HUB_CACHE
    folders = (Path(repository), Path(datasets.config.HF_DATASETS_CACHE), Path(hub))
    return ArrowSource(f"{repository} ({part})", dataset.features.arrow_schema, batches, folders)


def _download(repository: str, config: str | None) -> Any:
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
