"""docs/pretrained.md says what the recorded runs say."""

import importlib
import json
import re
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

pytestmark = pytest.mark.skipif(
    not BENCHMARKS.is_dir(), reason="NOT RUN: there is no benchmarks directory beside the tests"
)


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield importlib.import_module("pretrained_table")
    for name in ("pretrained_table", "markdown_sections"):
        sys.modules.pop(name, None)


def recorded() -> list[dict[str, Any]]:
    lines = (BENCHMARKS / "pretrained.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_the_tables_are_those_of_the_records(tables: Any) -> None:
    page = (ROOT / "docs" / "pretrained.md").read_text(encoding="utf-8")
    for title, names in tables.TABLES.items():
        assert f"<!-- {title} -->\n{tables.table(names)}\n<!-- / -->" in page
    runs = [run for run in recorded() if run["split"] == "test"]
    for name, column in (("cifar10", 2), ("cifar100", 5)):
        found = [r["accuracy"] for r in runs if (r["set"], r["method"]) == (name, "er-ace")]
        assert len(found) == 3
        (row,) = re.findall(r"\| ER-ACE, a linear layer \|.*", page.partition("## Text")[0])
        assert row.split("|")[column].split()[0] == f"{100 * fmean(found):.1f}"


def test_what_is_tested_was_chosen_on_held_out_examples() -> None:
    held_out: dict[tuple[str, str], list[tuple[float, Any]]] = {}
    for run in recorded():
        if run["split"] == "held-out":
            scores = held_out.setdefault((run["set"], run["method"]), [])
            scores.append((run["accuracy"], run["setting"]))
    for run in recorded():
        if run["split"] == "test" and run["setting"]:
            name = {"cifar100": "cifar10"}.get(run["set"], run["set"])
            scores = held_out[name, run["method"]]
            assert (max(scores, key=lambda score: score[0])[0], run["setting"]) in scores
            assert run["seed"] != 0  # another order than the one it was chosen in
