"""The numbers of Lee and Storkey (AISTATS 2024), to stand beside ours.

``paper_tables.json`` holds the paper's tables as they are printed: percent, standard errors over
three runs. Everything here is in fractions, as all metrics are.
"""

import json
from functools import cache
from importlib.resources import files
from typing import Any, Literal, TypeAlias

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
    """One cell of the paper's tables, as fractions; ``None`` where the paper has none.

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
    column, rows = _rows(table, dataset, stream, scenario, memory)
    row = rows.get(PAPER_NAMES.get(method, ""))
    if row is None or column is None:
        return None
    mean, error = row[column]
    return Estimate(_fraction(mean), _fraction(error), PAPER_RUNS)


def paper_cell(dataset: str, stream: str, scenario: str, method: str) -> Estimate | None:
    """The paper's number for a method with its usual memory: from Table 1, or its ablation."""
    return paper_value("table1", dataset, stream, scenario, method) or paper_value(
        "ablation", dataset, stream, scenario, method
    )


@cache
def paper_tables() -> dict[str, Any]:
    """The file as it is: percent, with the paper's names. Not to be changed."""
    text = files("deepccg.records").joinpath("paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


def _rows(
    table: PaperTable, dataset: str, stream: str, scenario: str, memory: int | None
) -> tuple[int | None, dict[str, list[list[float]]]]:
    """Which column of which rows; no column, or no rows, if the paper has not asked this."""
    tables = paper_tables()
    if table == "memory-size":
        asked = (dataset, stream, scenario) == ("cifar100", "shifting-window", "task")
        sizes = tables[_MEMORY_SIZE]
        return _place(sizes["columns"], memory), sizes["rows"] if asked else {}
    column = _place(tables["columns"], f"{_DATASETS.get(dataset, dataset)}/{stream}")
    if table == "ablation":
        return column, tables["table2_ablation_task_incremental"] if scenario == "task" else {}
    return column, tables["table1"].get(f"{scenario}-incremental", {})


def _place(columns: list[Any], wanted: object) -> int | None:
    return columns.index(wanted) if wanted in columns else None


def _fraction(percentage: float) -> float:
    """Exactly what the printed digits say, so that showing it in percent gives them back."""
    return float(f"{percentage}e-2")
