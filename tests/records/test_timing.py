"""The times of a run: what is written is read back, and a damaged file is ignored."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepccg.records import RecordError, RunDirectory, Timing, read_timings, timings_text

SECONDS = st.floats(0, 1e9)
TIMINGS = st.lists(st.builds(Timing, st.integers(0, 10**9), SECONDS, SECONDS), min_size=1)


@given(timings=TIMINGS)
def test_times_are_read_as_they_were_written(tmp_path_factory, timings: list[Timing]) -> None:
    path = tmp_path_factory.mktemp("run") / "timing.json"
    path.write_bytes(timings_text(timings))
    assert read_timings(path) == timings
    assert RunDirectory(path.parent).timing() == timings[0]


def test_the_newest_timing_comes_first() -> None:
    content = json.loads(timings_text([Timing(9, 1.5, 0.25), Timing(6, 1.0, 0.25)]))
    assert content == {
        "version": 1,
        "steps": 9,
        "learning_seconds": 1.5,
        "evaluation_seconds": 0.25,
        "before": [{"steps": 6, "learning_seconds": 1.0, "evaluation_seconds": 0.25}],
    }


GOOD = json.loads(timings_text([Timing(9, 1.5, 0.25)]))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"version": 1, "steps": 9',
        b"[" * 100_000,
        b" " * (1 << 21),
        json.dumps(GOOD | {"version": 2}).encode(),
        json.dumps(GOOD | {"steps": -1}).encode(),
        json.dumps(GOOD | {"steps": True}).encode(),
        json.dumps(GOOD | {"learning_seconds": -1}).encode(),
        json.dumps(GOOD | {"learning_seconds": float("nan")}).encode(),
        json.dumps(GOOD | {"evaluation_seconds": "long"}).encode(),
        json.dumps(GOOD | {"before": 3}).encode(),
        json.dumps(GOOD | {"before": [3]}).encode(),
        json.dumps(GOOD | {"more": 3}).encode(),
    ],
    ids=range(14),
)
def test_a_damaged_file_has_no_timings(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "timing.json"
    path.write_bytes(content)
    assert read_timings(path) == []
    assert RunDirectory(tmp_path).timing() is None


def test_a_missing_file_has_no_timings(tmp_path: Path) -> None:
    assert read_timings(tmp_path / "timing.json") == []
    (tmp_path / "timing.json").mkdir()
    assert read_timings(tmp_path / "timing.json") == []


def test_negative_seconds_are_refused() -> None:
    with pytest.raises(RecordError, match="learning_seconds should be greater than or equal to 0"):
        Timing(1, -0.5)
