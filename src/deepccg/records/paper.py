"""The numbers of Lee and Storkey (AISTATS 2024), to stand beside ours.

``paper_tables.json`` holds the paper's tables as they are printed: percent, standard errors over
three runs. Everything here is in fractions, as all metrics are.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias, cast

from deepccg.records.metrics import Estimate
from deepccg.records.naming import METHOD_ENTRIES

PaperTable: TypeAlias = Literal["table1", "ablation", "memory-size"]

PAPER_RUNS = 3
# What the paper calls each method.
PAPER_NAMES = {name: entry.paper for name, entry in METHOD_ENTRIES.items() if entry.paper}
_DATASETS = {"mini-imagenet": "miniimagenet"}  # ours to the file's
_MEMORY_SIZE = "memory_size_cifar100_shifting_window_task_incremental"


def paper_value(
    table: PaperTable,
    dataset: str,
    stream: str,
    scenario: str,
    method: str,
    memory: int | None = None,
) -> Estimate | None:
    """Return one cell of the paper's tables, as fractions; ``None`` where the paper has none.

    Args:
        table: ``table1`` for the main comparison, ``ablation``, or ``memory-size``.
        dataset: As in ``deepccg data``.
        stream: ``disjoint`` or ``shifting-window``.
        scenario: ``task`` or ``class``.
        method: As in ``deepccg methods``.
        memory: For ``memory-size``: stored examples in total, 750, 1000 or 1250.

    >>> paper_value("table1", "cifar10", "disjoint", "class", "deepccg")
    Estimate(mean=0.2427, standard_error=0.0044, n=3)
    >>> paper_value("table1", "digits", "disjoint", "class", "deepccg") is None
    True
    """
    columns, column, rows = _table(table, dataset, stream, scenario, memory)
    row = rows.get(PAPER_NAMES.get(method, ""))
    if row is None or column not in columns:
        return None
    mean, error = row[columns.index(column)]
    return Estimate(_fraction(mean), _fraction(error), PAPER_RUNS)


def paper_cell(dataset: str, stream: str, scenario: str, method: str) -> Estimate | None:
    """Return the paper's number for a method with its usual memory: of Table 1 or the ablation."""
    cell = (dataset, stream, scenario, method)
    return paper_value("table1", *cell) or paper_value("ablation", *cell)


@cache
def paper_tables() -> dict[str, Any]:
    """Return the file as it is: percent, with the paper's names. Not to be changed."""
    text = files("deepccg.records").joinpath("paper_tables.json").read_text(encoding="utf-8")
    return cast(dict[str, Any], json.loads(text))


def _table(
    table: PaperTable, dataset: str, stream: str, scenario: str, memory: int | None
) -> tuple[list[Any], str | int | None, dict[str, list[list[float]]]]:
    """Return the columns, the one asked for, and the rows; none where the paper has no numbers."""
    tables = paper_tables()
    if table == "memory-size":
        asked = (dataset, stream, scenario) == ("cifar100", "shifting-window", "task")
        sizes = tables[_MEMORY_SIZE]
        return sizes["columns"], memory, sizes["rows"] if asked else {}
    rows = tables["table1"].get(f"{scenario}-incremental", {})
    if table == "ablation":
        rows = tables["table2_ablation_task_incremental"] if scenario == "task" else {}
    return tables["columns"], f"{_DATASETS.get(dataset, dataset)}/{stream}", rows


def _fraction(percentage: float) -> float:
    """Return exactly what the printed digits say, so that showing it in percent gives them back."""
    return float(f"{percentage}e-2")
