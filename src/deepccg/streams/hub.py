"""Image-classification data sets of the public hub, through the ``datasets`` library."""

from collections.abc import Iterator, Sequence
from typing import Any

from deepccg.core import InputError
from deepccg.streams.tables import Table

_BATCH_ROWS = 256


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
