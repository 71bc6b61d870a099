"""The examples run, and say what the documentation says they say."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_new_classes(capsys: pytest.CaptureFixture[str]) -> None:
    accuracy = runpy.run_path(str(ROOT / "examples" / "new_classes.py"))["main"]()
    printed = capsys.readouterr().out.splitlines()
    assert accuracy > 0.8
    assert len(printed) == 6
    assert printed[-1].endswith("stored: 100 ([10, 10, 10, 10, 10, 10, 10, 10, 10, 10])")


def test_tabular_drift(capsys: pytest.CaptureFixture[str]) -> None:
    found = runpy.run_path(str(ROOT / "examples" / "tabular_drift.py"))["main"](rows=60)
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in printed[2:]] == list(found)
    assert [len(accuracies) for accuracies in found.values()] == [4] * 5
    images, *_ = found["DeepCCG"]
    assert images > 2 / 7  # of seven classes, the first predictions included
