"""Ctrl-C and SIGKILL to a sweep: runs are saved, nothing is orphaned, the next sweep continues."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

import pytest
from rich.console import Console

from deepccg.experiment import resolve, run
from deepccg.experiment.session import load_checkpoint
from deepccg.records import RunDirectory
from deepccg.sweep import Job, SweepStopped, load_grid, run_jobs
from deepccg.sweep.engine import Event, Finished, Started
from deepccg.sweep.job import JobResult, JobSpec, execute
from deepccg.sweep.progress import SweepProgress
from deepccg.sweep.scheduler import SweepLoop

GRID = """
methods = "odd_learners:Slow"
seeds = "0-1"
settings.stream.examples_per_class = 50  # 50 steps of a fiftieth of a second
"""
PATIENCE = 120.0  # seconds; a machine may be busy


def start(place: Path, *options: str) -> "subprocess.Popen[str]":
    """Start the installed program as a user would."""
    command = [Path(sys.executable).with_name("deepccg"), "sweep", "grid.toml", "--out", "out"]
    trusted = ["--method", "odd_learners:Slow", "--jobs", "1"]
    path = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [*map(str, command), *trusted, *options],
        cwd=place,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path), "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # were it ignored here
    )


def wait_for(holds: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "timed out"
        time.sleep(0.01)


def workers_of(parent: int) -> list[int]:
    """Return the worker processes of a sweep."""

    def found() -> Iterator[int]:
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    after_name = (entry / "stat").read_text().rpartition(")")[2].split()
                    command = (entry / "cmdline").read_bytes()
                except OSError:  # gone by now
                    continue
                if int(after_name[1]) == parent and b"deepccg.sweep.worker" in command:
                    yield int(entry.name)

    return list(found())


def is_gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state == "Z"  # it has ended, but its parent has not collected its status


def position(place: Path, seed: int) -> int:
    """Return the step of a run's last checkpoint; -1 if there is none."""
    for path in place.glob(f"out/*/seed-{seed}/checkpoint.safetensors"):
        return int(load_checkpoint(path)[1]["position"])
    return -1


@pytest.mark.slow  # three times a program and a worker that import torch
@pytest.mark.timeout(900)
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
def test_a_sweep_survives_ctrl_c_and_kill(
    tmp_path: Path, fingerprints: Callable[[Path], dict[str, str]]
) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "grid.toml").write_text(GRID)

    first = start(place)  # with a checkpoint at the end only
    wait_for(lambda: list(place.glob("out/*/seed-0/config.toml")))
    time.sleep(0.2)
    (worker,) = workers_of(first.pid)
    first.send_signal(signal.SIGINT)
    _, shown = first.communicate()
    assert first.returncode == 130
    assert "stopping: every run saves a checkpoint first\n" in shown
    assert shown.endswith("Stopped and saved; runs to do: 2 of 2. The same command continues.\n")
    stopped_at = position(place, seed=0)
    assert 0 < stopped_at < 50
    assert re.search(rf"stopped .*: stopped by SIGINT at step {stopped_at} ", shown)
    assert is_gone(worker)
    assert position(place, seed=1) == -1

    second = start(place)
    wait_for(lambda: list(place.glob("out/*/seed-1/config.toml")))
    time.sleep(0.2)
    (worker,) = workers_of(second.pid)
    second.kill()
    wait_for(lambda: is_gone(worker))  # which saves, as its input has ended
    second.communicate()
    assert 0 < position(place, seed=1) < 50
    assert RunDirectory(next(place.glob("out/*/seed-0"))).finished

    third = start(place)
    out, shown = third.communicate()
    assert third.returncode == 0
    assert shown.endswith("runs: 2, of which 1 finished, 1 had finished before, 0 failed\n")
    assert "odd_learners:Slow" in out
    grid = load_grid(place / "grid.toml", methods=("odd_learners:Slow",))
    for job in grid.jobs():
        alone = run(job.config, tmp_path / f"alone-{job.seed}")
        assert fingerprints(place / "out" / job.name) == fingerprints(alone.directory)


@pytest.mark.slow  # a process that imports torch
def test_a_run_that_lost_ctrl_c_during_its_setup_still_stops(
    tmp_path: Path, ctrl_c: Callable[..., AbstractContextManager[None]]
) -> None:
    deaf = Job(resolve({"method": "odd_learners:Deaf", "stream.examples_per_class": 40}), 0)
    with ctrl_c((tmp_path / "is-made").exists), pytest.raises(SweepStopped) as stopped:
        run_jobs([deaf], out=tmp_path / "out", workers=1, progress=False)
    assert stopped.value.left == 1
    saved = load_checkpoint(tmp_path / "out" / deaf.name / "checkpoint.safetensors")
    assert 0 < saved[1]["position"] < 40


def test_a_run_asked_to_stop_first_writes_nothing(tmp_path: Path, short: dict[str, int]) -> None:
    spec = JobSpec.from_job(Job(resolve({**short, "method": "sgd"}), 0), tmp_path)
    result = execute(spec, lambda *_: None, lambda: True)
    assert (result.status, result.retryable) == ("stopped", True)
    assert not Path(spec.directory).exists()


def test_a_run_asked_to_stop_at_every_step_stops_once(
    tmp_path: Path, short: dict[str, int]
) -> None:
    spec = JobSpec.from_job(Job(resolve({**short, "method": "sgd"}), 0), tmp_path)
    steps: list[int] = []
    result = execute(spec, lambda step, _: steps.append(step), lambda: len(steps) >= 6)
    assert (result.status, result.error) == ("stopped", "stopped by SIGINT at step 7")
    assert steps == [*range(1, 8)]
    assert load_checkpoint(Path(spec.directory) / "checkpoint.safetensors")[1]["position"] == 7
    assert execute(spec, lambda *_: None, lambda: False) == JobResult("finished")


class Late:
    """An engine that reports the start of a run only when it is asked to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: list[Event] = []

    def submit(self, spec: JobSpec) -> None:
        """It starts."""

    def next_event(self, seconds: float) -> Event | None:  # noqa: ARG002  (nothing to wait for)
        if not self.events:
            signal.raise_signal(signal.SIGINT)
        return self.events.pop(0) if self.events else None

    def stop(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        result = JobResult("stopped", "at step 3", retryable=True)
        self.events = [Started(self.name), Finished(self.name, result)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Events that were not handled are lost."""


def test_stopping_waits_for_a_run_whose_start_was_not_reported_yet(
    tmp_path: Path, short: dict[str, int]
) -> None:
    job = Job(resolve({**short, "method": "sgd"}), 0)
    engine = Late(job.name)
    progress = SweepProgress(1, 0, Console(quiet=True))
    specs = {job.name: JobSpec.from_job(job, tmp_path)}
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(SweepStopped) as stopped:
            SweepLoop({job.name: job}, specs, engine, progress, 1, tmp_path).run([])
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.value.left == 1
    assert engine.events == []
