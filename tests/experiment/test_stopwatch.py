"""The times of a run are those of the steps that count, however often it was interrupted."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from deepccg.core import Batch, StepInfo
from deepccg.experiment import CheckpointWarning, run
from deepccg.methods import ER
from deepccg.records import RunDirectory, Timing
from deepccg.report import read_run

DIGITS = {"dataset": "digits", "stream.examples_per_class": 20}  # 20 batches
LONG = 0.4  # seconds, beside which the other steps are nothing


class Sleepy(ER):
    """Sleeps in some steps, when asked to."""

    naps: ClassVar[set[int]] = set()
    taken: ClassVar[int] = 0

    def learn(self, batch: Batch) -> StepInfo:
        Sleepy.taken += 1
        if Sleepy.taken in Sleepy.naps:
            time.sleep(LONG)
        return super().learn(batch)


@pytest.fixture
def sleepy(tmp_path: Path) -> Callable[..., Timing | None]:
    """Continues a run behind a step, with naps in some steps, up to a step or to the end."""

    def do(behind: int, naps: set[int], until: int | None = None) -> Timing | None:
        Sleepy.naps, Sleepy.taken = naps, behind

        def progress(step: int, _steps: int, _info: StepInfo) -> None:
            assert step == Sleepy.taken
            if step == until:
                raise TimeoutError

        settings = {"directory": tmp_path / "run", "learner": Sleepy, "checkpoint_every": 3}
        if until is None:
            run(**settings, **DIGITS)
        else:
            with pytest.raises(TimeoutError):
                run(**settings, progress=progress, **DIGITS)
        return RunDirectory(tmp_path / "run").timing()

    return do


def test_learning_and_scoring_are_timed(sleepy: Callable[..., Timing | None]) -> None:
    began = time.perf_counter()
    timing = sleepy(0, {5, 14})
    took = time.perf_counter() - began
    assert timing is not None
    assert timing.steps == 20
    assert 2 * LONG < timing.learning_seconds < took
    assert 0 < timing.evaluation_seconds < LONG
    assert timing.learning_seconds + timing.evaluation_seconds < took


def test_a_repeated_step_counts_once(sleepy: Callable[..., Timing | None]) -> None:
    there = sleepy(0, {2, 8}, until=8)  # saved after the sixth
    assert there is not None
    assert there.steps == 6
    whole = sleepy(6, {19})
    assert whole is not None
    assert whole.steps == 20
    assert 2 * LONG < whole.learning_seconds < 3 * LONG  # steps 2 and 19, without 8


def test_a_run_that_goes_further_back_takes_its_times_along(
    sleepy: Callable[..., Timing | None], tmp_path: Path
) -> None:
    sleepy(0, {2, 8}, until=10)  # saved after the sixth and the ninth
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    checkpoint.write_bytes(b"damaged")
    with pytest.warns(CheckpointWarning):
        whole = sleepy(6, set())
    assert whole is not None
    assert LONG < whole.learning_seconds < 2 * LONG


def test_times_written_before_a_checkpoint_that_was_not_do_not_count(
    sleepy: Callable[..., Timing | None], tmp_path: Path
) -> None:
    sleepy(0, {2, 8}, until=10)
    directory = tmp_path / "run"
    shutil.move(directory / "previous.safetensors", directory / "checkpoint.safetensors")
    whole = sleepy(6, set())
    assert whole is not None
    assert LONG < whole.learning_seconds < 2 * LONG


@pytest.mark.parametrize("left", [None, b"nonsense"])
def test_a_run_whose_beginning_was_not_timed_has_no_times(
    sleepy: Callable[..., Timing | None], tmp_path: Path, left: bytes | None
) -> None:
    sleepy(0, set(), until=10)
    path = tmp_path / "run" / "timing.json"
    path.unlink()
    if left is not None:
        path.write_bytes(left)
    assert sleepy(9, set()) is None


def test_a_report_knows_the_seconds_of_whole_runs_alone(tmp_path: Path) -> None:
    result = run(directory=tmp_path / "run", method="er", **DIGITS)
    directory = RunDirectory(result.directory)
    found, timing = read_run(directory), directory.timing()
    assert found is not None
    assert timing is not None
    assert found.seconds == timing.learning_seconds > 0
    text = directory.timing_path.read_text().replace('"steps": 20', '"steps": 19')
    directory.timing_path.write_text(text)
    found = read_run(directory)
    assert found is not None
    assert found.seconds is None
