"""TensorBoard: what its own reader finds in the event files is what the records say."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tensorboard", reason="the extra deepccg[tracking] is not installed")

import numpy as np
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from deepccg.records import RunDirectory

Series = dict[str, list[tuple[int, float]]]


def read(directory: Path) -> tuple[Series, str]:
    events = EventAccumulator(str(directory), size_guidance={"scalars": 0, "tensors": 0}).Reload()
    found = {
        name: [(event.step, event.value) for event in events.Scalars(name)]
        for name in events.Tags()["scalars"]
    }
    (text,) = events.Tensors("config/text_summary")
    return found, text.tensor_proto.string_val[0].decode()


@pytest.mark.parametrize("cuts", [(), (25, 65, 95)])
def test_what_is_read_is_what_was_recorded(
    tmp_path: Path,
    tracked_run: Callable[..., RunDirectory],
    series: Callable[[RunDirectory], Series],
    parameters: Callable[[RunDirectory], dict[str, Any]],
    cuts: tuple[int, ...],
) -> None:
    directory = tracked_run(tmp_path / "run", "tensorboard", *cuts)
    found, config = read(tmp_path / "run")
    single = {  # event files hold single precision
        name: [(step, float(np.float32(value))) for step, value in points]
        for name, points in series(directory).items()
    }
    assert found == single
    assert len(list((tmp_path / "run").glob("events.out.tfevents.*"))) == 1
    rows = [f"| {name} | `{value}` |" for name, value in parameters(directory).items()]
    assert set(config.splitlines()[2:]) == set(rows)


def test_an_open_tensorboard_drops_points_of_an_interrupted_attempt(
    tmp_path: Path, tracked_run: Callable[..., RunDirectory]
) -> None:
    directory = tracked_run(tmp_path / "run", "tensorboard")
    reader = EventAccumulator(str(directory.path)).Reload()
    before = reader.Scalars("train/loss")
    tracked_run(tmp_path / "run", "tensorboard")  # as after an interruption
    after = reader.Reload().Scalars("train/loss")
    assert [(event.step, event.value) for event in after] == [
        (event.step, event.value) for event in before
    ]
