"""Tracking itself: bad names, backends that fail, ids."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from deepccg.core import InputError
from deepccg.experiment import run
from deepccg.records import RecordError, RunDirectory, Shift, Training
from deepccg.tracking import Tracker, track_run
from deepccg.tracking import tracker as module
from deepccg.tracking.tracker import MetricPoint, metric_point


class Unreliable:
    """A backend whose server cannot be reached for the first deliveries."""

    errors: ClassVar[tuple[type[Exception], ...]] = (ConnectionError,)

    def __init__(self, away_for: int) -> None:
        self.away_for = away_for
        self.points: list[MetricPoint] = []
        self.finished: bool | None = None

    def send(self, points: Sequence[MetricPoint]) -> None:
        self.away_for -= 1
        if self.away_for >= 0:
            raise ConnectionRefusedError("nobody there")
        self.points += points

    def close(self, *, finished: bool) -> None:
        self.finished = finished


RECORDS = [Training(step, 1 / step, {"extra": float(step)}) for step in range(1, 6)]
POINTS = [
    MetricPoint(step, {"train/loss": 1 / step, "train/extra": float(step)}) for step in range(1, 6)
]


@pytest.mark.parametrize("seconds", [0.0, 3600.0])
def test_a_backend_that_comes_back_has_everything_once(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", seconds)
    backend = Unreliable(away_for=1 if seconds == 0 else 0)
    tracker = Tracker(backend)
    for record in RECORDS:
        tracker.record(record)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker.close(finished=True)
    assert backend.points == POINTS
    assert backend.finished is True


def test_a_backend_that_stays_away_costs_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SEND_SECONDS", 0.0)
    backend = Unreliable(away_for=1000)
    tracker = Tracker(backend)
    for record in RECORDS:
        tracker.record(record)
    assert backend.away_for == 999  # asked once, and left alone until the end
    with pytest.warns(UserWarning, match="5 records were not delivered") as caught:
        tracker.close(finished=False)
    assert len(caught) == 1
    assert "nobody there" in str(caught[0].message)
    assert backend.points == []


def test_without_a_tracker_nothing_is_written(tmp_path: Path) -> None:
    with track_run(None, RunDirectory(tmp_path), {}) as tracker:
        tracker.record(RECORDS[0])
    assert list(tmp_path.iterdir()) == []


def test_a_tracker_that_does_not_exist_is_refused_first(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="track should be mlflow or tensorboard or wandb"):
        run(directory=tmp_path / "run", track="notebook")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("content", [b"", b"[]", b'{"id": "x"}', b'{"id": 3}', b"\xff"])
def test_a_damaged_id_is_refused(tmp_path: Path, content: bytes) -> None:
    pytest.importorskip("tensorboard")
    target = RunDirectory(tmp_path)
    target.tracking_path.write_bytes(content)
    with (
        pytest.raises(RecordError, match="remove it to be tracked as a new run"),
        track_run("tensorboard", target, {}),
    ):
        pass


def test_an_id_stays_the_same(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    target = RunDirectory(tmp_path)
    for _ in range(2):
        with track_run("tensorboard", target, {"seed": 0}):
            pass
        content = target.tracking_path.read_bytes()
    assert target.tracking_path.read_bytes() == content


def test_other_records_give_their_numbers() -> None:
    counts = {"images": 10, "correct_before": 8, "correct_after": 7, "correct_stale": 5}
    shift = Shift(step=7, task=2, mode="class", distance=0.5, spread=2.0, **counts)
    values = {"task": 2.0, "distance": 0.5, "spread": 2.0, **counts}
    wanted = {f"shift/{name}": float(value) for name, value in values.items()}
    assert metric_point(shift, []) == MetricPoint(7, wanted)
