"""Arrow tables from parquet files: local ones, or those of the public hub."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deepccg.core import InputError
from deepccg.streams.tables import ArrowSource

_BATCH_ROWS = 256  # images are up to some hundred kB each


def parquet_folder(data_dir: Path, folders: Sequence[str]) -> Path | None:
    """Return the first folder with the training part of a data set, or None.

    All parts are then read from there, so that parts of two data sets never get mixed.

    Args:
        data_dir: The directory the user named; tried last, as it may hold several data sets.
        folders: Sub-directories that may hold the files.
    """
    if not data_dir.is_dir():
        raise InputError(f"there is no data directory {data_dir}")
    places = (data_dir / folder for folder in (*folders, ""))
    return next((place for place in places if parquet_part(place, ("train",))), None)


def parquet_part(folder: Path, names: Sequence[str]) -> list[Path]:
    """Return the files of the first of ``names`` that exists, one file or several shards."""
    shards = (sorted(folder.glob(f"{name}*.parquet")) for name in names)
    return next((files for files in shards if files), [])


def parquet_table(files: Sequence[Path]) -> ArrowSource:
    """Return the rows of these files, one file after the other."""
    title = files[0].name if len(files) == 1 else f"{files[0].name} (and {len(files) - 1} more)"

    def batches(columns: list[str]) -> Iterator[Any]:
        for file in files:
            yield from _file_batches(file, columns)

    return ArrowSource(title, _open(files[0]).schema_arrow, batches)


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


def hub_tables(
    repository: str, config: str | None, parts: Sequence[Sequence[str]]
) -> list[ArrowSource]:
    """Return parts of a data set of the public hub.

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


def _table(title: str, dataset: Any) -> ArrowSource:
    def batches(columns: list[str]) -> Iterator[Any]:
        # In Arrow format an image column stays encoded; decoding is the same for every source.
        selected = dataset.select_columns(columns).with_format("arrow")
        yield from selected.iter(batch_size=_BATCH_ROWS)

    return ArrowSource(title, dataset.features.arrow_schema, batches)


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
