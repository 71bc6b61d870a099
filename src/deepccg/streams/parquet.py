"""Parquet files in the layout of the public hub."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deepccg.core import InputError
from deepccg.streams.tables import Table

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
