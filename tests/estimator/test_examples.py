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
