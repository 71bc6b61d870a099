"""The paper's numbers are the ones it prints."""

import json
from importlib.resources import files

import pytest

from deepccg.methods import METHODS
from deepccg.records import PAPER_NAMES, paper_cell, paper_tables, paper_value

TABLES = json.loads(files("deepccg.records").joinpath("paper_tables.json").read_text())


def test_every_printed_number_is_found():
    found = 0
    for scenario in ("task", "class"):
        rows = TABLES["table1"][f"{scenario}-incremental"]
        for method, name in PAPER_NAMES.items():
            for column, place in enumerate(TABLES["columns"]):
                dataset, stream = place.replace("miniimagenet", "mini-imagenet").split("/")
                value = paper_value("table1", dataset, stream, scenario, method)
                if name not in rows:
                    assert value is None
                    continue
                mean, error = rows[name][column]
                assert (value.mean, value.standard_error) == (
                    pytest.approx(mean / 100, abs=1e-12),
                    pytest.approx(error / 100, abs=1e-12),
                )
                assert value.n == 3
                found += 1
    assert found == 6 * sum(len(rows) for rows in TABLES["table1"].values())


@pytest.mark.parametrize(
    ("arguments", "percent"),
    [
        (("table1", "cifar10", "shifting-window", "task", "deepccg"), (74.65, 2.0)),
        (("table1", "mini-imagenet", "disjoint", "class", "multi-task"), (12.41, 0.69)),
        (("ablation", "cifar100", "disjoint", "task", "deepccg-reservoir"), (54.76, 0.08)),
        (("memory-size", "cifar100", "shifting-window", "task", "er", 1250), (55.22, 0.592)),
    ],
)
def test_numbers_read_off_the_paper(arguments, percent):
    value = paper_value(*arguments)
    assert (100 * value.mean, 100 * value.standard_error) == pytest.approx(percent)


@pytest.mark.parametrize(
    "arguments",
    [
        ("table1", "digits", "disjoint", "task", "er"),
        ("table1", "cifar10", "disjoint", "class", "packnet"),
        ("table1", "cifar10", "disjoint", "task", "protocl"),
        ("ablation", "cifar10", "disjoint", "class", "er"),
        ("memory-size", "cifar10", "shifting-window", "task", "er", 1000),
        ("memory-size", "cifar100", "shifting-window", "task", "er", 999),
        ("memory-size", "cifar100", "shifting-window", "task", "er"),
    ],
)
def test_what_the_paper_does_not_say(arguments):
    assert paper_value(*arguments) is None


def test_a_cell_comes_from_either_table():
    where = ("cifar10", "disjoint", "task")
    assert paper_cell(*where, "er") == paper_value("table1", *where, "er")
    assert paper_cell(*where, "deepccg-standard-head").mean == pytest.approx(0.6399)
    assert set(PAPER_NAMES) <= set(METHODS)
    assert paper_tables() == TABLES
