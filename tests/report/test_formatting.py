"""One way of rounding: the paper's numbers are the same wherever they stand."""

import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

import pytest

from deepccg.records import PAPER_NAMES, Estimate, paper_tables, paper_value
from deepccg.report import percent
from deepccg.report.formatting import in_percent
from deepccg.report.table import best_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TIES = {  # printed with a 5 at the end
    ("disjoint", "class", "ewc"): "13.9 ± 2.2",
    ("shifting-window", "task", "gss"): "71.6 ± 1.5",
}


def by_hand(printed: float) -> str:
    return str(Decimal(str(printed)).quantize(Decimal("0.1"), ROUND_HALF_UP))


def test_every_number_of_the_paper_is_rounded_as_by_hand():
    tables, checked = paper_tables(), 0
    for scenario in ("task", "class"):
        for method, name in PAPER_NAMES.items():
            row = tables["table1"][f"{scenario}-incremental"].get(name, [])
            for place, (mean, error) in zip(tables["columns"], row, strict=bool(row)):
                dataset, stream = place.replace("mini", "mini-").split("/")
                found = paper_value("table1", dataset, stream, scenario, method)
                assert percent(found) == f"{by_hand(mean)} ± {by_hand(error)}"
                checked += 1
    assert checked > 100


@pytest.mark.parametrize(("where", "text"), TIES.items(), ids=str)
def test_the_benchmarks_print_the_same(monkeypatch, where, text):
    if not BENCHMARKS.is_dir():
        pytest.skip("NOT RUN: there is no benchmarks directory beside the tests")
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import results

    stream, scenario, method = where
    assert text in results.numbers_of(method, {})
    key = ("cifar10", stream, scenario, method, "default")
    runs = {key: {0: []}}
    monkeypatch.setattr("result_tables.estimates", lambda _: {f"{scenario}_accuracy": None})
    assert text in results.result_table(runs, "cifar10", stream)


def test_a_mean_that_ends_beside_its_half_counts_as_the_half():
    assert in_percent(0.13849999999999998) == in_percent(0.13850000000000001) == "13.9"
    assert in_percent(-0.0625) == "-6.3"


def test_the_best_are_those_shown_as_the_best():
    assert best_of([Estimate(value, None, 1) for value in (0.1385, 0.1394, 0.1384)]) == [
        True, True, False,
    ]  # fmt: skip
