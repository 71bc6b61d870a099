"""Records of representation shift: rates from counts, and the values they refuse."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deepccg.records import RecordError, RunDirectory, Shift, append_record, shift_points

GOOD: dict[str, Any] = {
    "step": 251,
    "task": 1,
    "mode": "task",
    "images": 200,
    "distance": 0.5,
    "spread": 2.0,
    "correct_before": 150,
    "correct_after": 140,
    "correct_stale": 120,
}


def test_rates_come_from_counts() -> None:
    shift = Shift(**GOOD)
    assert shift.relative == 0.25
    assert shift.accuracy_change == pytest.approx(-0.05)
    assert shift.misalignment == pytest.approx(-0.1)
    assert Shift(**GOOD | {"spread": 0.0}).relative is None


def test_a_record_survives_the_file(tmp_path: Path) -> None:
    append_record(tmp_path / "records.jsonl", Shift(**GOOD))
    line = json.loads((tmp_path / "records.jsonl").read_text())
    assert line == {"type": "shift"} | GOOD
    assert RunDirectory(tmp_path).shifts() == [Shift(**GOOD)]
    assert RunDirectory(tmp_path).evaluations() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "both"}, "mode should be 'task' or 'class', not 'both'"),
        ({"images": 0}, "images should be greater than or equal to 1"),
        ({"distance": -1.0}, "distance should be greater than or equal to 0, not -1.0"),
        ({"spread": float("nan")}, "spread should be a finite number"),
        ({"correct_stale": 201}, "correct_stale must be at most 200"),
        ({"step": True}, "step should be a valid integer"),
        ({"more": 1}, "more is an unknown key"),
    ],
)
def test_impossible_values_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        Shift(**GOOD | change)


def test_points_without_a_spread_are_left_out() -> None:
    shifts = [Shift(**GOOD), Shift(**GOOD | {"spread": 0.0, "correct_after": 160})]
    x, y = shift_points(shifts, "relative", "accuracy_change")
    assert (x.tolist(), y.tolist()) == ([0.25], [-0.05])
    x, y = shift_points(shifts, "distance", "misalignment")
    np.testing.assert_allclose(x, [0.5, 0.5])
    np.testing.assert_allclose(y, [-0.1, -0.2])
    assert [len(axis) for axis in shift_points([], "distance", "misalignment")] == [0, 0]
