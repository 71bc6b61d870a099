"""Kills in `report`, `archive` and `tune`, runs in use, and clocks that jump."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from killing import QUICK, Forks, Moment, Whole, fingerprint, run_in

from deepccg.core import CannotWrite
from deepccg.experiment import resolve, run
from deepccg.sweep import Job, Outcome, run_jobs
from deepccg.tune import Choice, tune

REPORT = ["report", "out", "--export", "exported"]


@pytest.fixture(scope="module")
def finished(forks: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("finished")
    for seed in ("0", "1"):
        done = forks(["run", "--method", "sgd", "--seeds", seed, *QUICK], str(place), None)
        assert done.status == 0
    return place / "out"


def contents(place: Path) -> dict[str, bytes]:
    files = (file for file in place.rglob("*") if file.is_file() and "out" not in file.parts)
    return {str(file.relative_to(place)): file.read_bytes() for file in files}


@pytest.mark.slow  # draws the figures again for each kill
def test_kills_in_report(forks: Forks, finished: Path, tmp_path: Path) -> None:
    """Each file is whole or not there, and the next report removes what was left."""
    whole = tmp_path / "whole"
    shutil.copytree(finished, whole / "out")
    calls = forks(REPORT, str(whole), None).calls
    expected = contents(whole)
    assert len(calls) == 4 * len(expected)  # write, sync, rename, sync of the directory
    place = tmp_path / "place"
    shutil.copytree(finished, place / "out")
    for call in (0, 1, 2, 9):
        assert forks(REPORT, str(place), Moment(call=call, part=0.4)).status == -signal.SIGKILL
        there = contents(place)
        assert all(expected[name] == there[name] for name in expected.keys() & there.keys())
        assert len(there.keys() - expected.keys()) <= 2  # of different files
    assert forks(REPORT, str(place), None).status == 0
    assert contents(place) == expected


def test_kills_in_archive(forks: Forks, finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "out")
    first, second = sorted(run.relative_to(tmp_path) for run in (tmp_path / "out").glob("*/seed-*"))
    assert forks(["archive", str(first), "--to", "runs.jsonl"], str(tmp_path), None).status == 0
    before = (tmp_path / "runs.jsonl").read_bytes()
    command = ["archive", str(second), "--to", "runs.jsonl"]
    for call in range(4):
        moment = Moment(call=call, part=0.4)
        assert forks(command, str(tmp_path), moment).status == -signal.SIGKILL
        after = (tmp_path / "runs.jsonl").read_bytes()
        assert after == before or (call == 3 and after.startswith(before))
    assert forks(command, str(tmp_path), None).status == 0
    assert (tmp_path / "runs.jsonl").read_bytes().count(b"\n") == 2
    assert not list(tmp_path.glob("*.tmp"))
    assert not list(tmp_path.glob(".*"))


TUNE = [
    *("tune", "--method", "sgd", "--space", "lr=0.01,0.1", "--seeds", "0", "-j", "1"),
    *("--set", "stream.examples_per_class=20", "--out", "out", "--write", "tuned.toml"),
]


@pytest.mark.slow  # workers that import torch
def test_kills_in_tune(forks: Forks, tmp_path: Path) -> None:
    """Whenever it is killed, the same command finds the same: in its runs or while it writes."""
    whole = tmp_path / "whole"
    whole.mkdir()
    began = time.monotonic()
    done = forks(TUNE, str(whole), None)
    seconds = time.monotonic() - began
    assert done.status == 0, done.err
    expected = contents(whole)
    assert set(expected) == {"tuned.toml", "tuned.json"}
    place = tmp_path / "place"
    place.mkdir()
    last = [Moment(call=call, part=0.5) for call in (0, 4)]
    for moment in (Moment(seconds=0.8 * seconds), *last):
        assert forks(TUNE, str(place), moment).status in (-signal.SIGKILL, 0)
        there = contents(place)
        assert all(expected[name] == there[name] for name in expected.keys() & there.keys())
    assert forks(TUNE, str(place), None).status == 0
    assert contents(place) == expected


@pytest.mark.slow  # a worker that imports torch
def test_a_run_that_another_process_still_saves_is_waited_for(tmp_path: Path) -> None:
    """As after a kill of the search: its workers finish a step and save."""
    job = Job(resolve({"method": "sgd", "stream.examples_per_class": 4}), 0)
    directory = tmp_path / job.name
    directory.mkdir(parents=True)
    lock = FileLock(directory / ".lock", thread_local=False)
    lock.acquire()
    released = []

    def release() -> None:
        time.sleep(12)
        released.append(True)
        lock.release()

    threading.Thread(target=release).start()
    (outcome,) = run_jobs([job], out=tmp_path, workers=1)
    assert released
    assert (outcome.status, outcome.error) == ("finished", None)


def test_a_point_is_not_blamed_for_a_full_disk(tmp_path: Path) -> None:
    def no_room(jobs: list[Job]) -> list[Outcome]:
        return [Outcome(job, tmp_path, "failed", "no room", 1, unrelated=True) for job in jobs]

    with pytest.raises(CannotWrite, match=r"no room\. The search stopped"):
        tune({"method.name": "sgd"}, [Choice("method.lr", (0.1, 0.2))], no_room, seeds=[0])


def test_a_clock_that_runs_backwards(
    whole: Callable[[str], Whole], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that a run writes, and no moment at which it does, comes from the time of day."""
    expected, now = whole("sgd"), [4e9]

    def earlier(*_: Any) -> float:
        now[0] -= 3600.0
        return now[0]

    monkeypatch.setattr(time, "time", earlier)
    monkeypatch.setattr(time, "time_ns", lambda: int(1e9 * earlier()))
    settings: dict[str, Any] = {"method": "sgd", "stream.examples_per_class": 20}
    run(directory=tmp_path / "run", checkpoint_every="0.01s", **settings)
    assert fingerprint(tmp_path / "run") == expected.files


def test_a_run_in_the_future_is_continued(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    """Times of files do not matter either."""
    command = ["run", "--method", "sgd", *QUICK]
    assert forks(command, str(tmp_path), Moment(call=100, part=0.5)).status == -signal.SIGKILL
    for number, file in enumerate(sorted(run_in(tmp_path).iterdir())):
        os.utime(file, (4e9 - 1e9 * number, 4e9 - 1e9 * number))
    assert forks(command, str(tmp_path), None).status == 0
    assert fingerprint(run_in(tmp_path)) == whole("sgd").files
