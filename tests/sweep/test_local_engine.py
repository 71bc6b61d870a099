"""The pool of local processes: a run that fails does not affect the others."""

import re
from collections.abc import Callable
from pathlib import Path

import odd_learners
import pytest

from deepccg.experiment import resolve, run
from deepccg.records import RunDirectory
from deepccg.sweep import Grid, Job, Outcome, run_jobs

Fingerprint = Callable[[Path], dict[str, str]]


def job(short: dict[str, int], method: str, seed: int = 0, **settings: object) -> Job:
    return Job(resolve({**short, "method": method, **settings}), seed)


def odd(name: str) -> str:
    return f"odd_learners:{name}"


@pytest.fixture
def swept(
    tmp_path: Path, short: dict[str, int], capfd: pytest.CaptureFixture[str]
) -> tuple[dict[str, Outcome], str]:
    """Run one sweep with every kind of failure; returns the outcomes and what was printed."""
    run(resolve({**short, "method": "sgd"}), tmp_path / "out" / job(short, "sgd").name)
    jobs = {
        "er": job(short, "er"),
        "killed": job(short, odd("KilledOnce")),
        "segfault": job(short, odd("Segfaults")),
        "raises": job(short, odd("Raises")),
        "before": job(short, "sgd"),
        "diverges": job(short, "sgd", **{"method.lr": 1e30}),
        "no data": job(short, "sgd", dataset="cifar10"),
        "er 1": job(short, "er", 1),
    }
    (tmp_path / "no data").mkdir()
    outcomes = run_jobs(
        jobs.values(),
        out=tmp_path / "out",
        data_dir=tmp_path / "no data",
        workers=2,
        checkpoint_every=1,
    )
    return dict(zip(jobs, outcomes, strict=True)), capfd.readouterr().err


@pytest.mark.slow  # a process that imports torch for each that dies
def test_each_kind_of_failure_affects_only_its_own_run(
    swept: tuple[dict[str, Outcome], str], tmp_path: Path, fingerprints: Fingerprint
) -> None:
    outcomes, shown = swept
    assert {name: (each.status, each.attempts) for name, each in outcomes.items()} == {
        "er": ("finished", 1),
        "killed": ("finished", 2),  # continued from its checkpoint
        "segfault": ("failed", 2),
        "raises": ("failed", 2),
        "before": ("already", 0),
        "diverges": ("failed", 1),  # as it would again
        "no data": ("failed", 1),
        "er 1": ("finished", 1),
    }
    assert outcomes["segfault"].error == "its process was killed by SIGSEGV"
    assert outcomes["raises"].error == "ZeroDivisionError: by nothing"
    assert "smaller" in (outcomes["diverges"].error or "")
    assert "cifar10" in (outcomes["no data"].error or "")

    # Finished runs are the same, bit for bit, as without a sweep.
    for name, method in (("er", "er"), ("er 1", "er"), ("killed", odd("KilledOnce"))):
        outcome = outcomes[name]
        alone = run(outcome.job.config, tmp_path / "alone" / name)
        assert alone.config.method.name == method
        assert fingerprints(outcome.directory) == fingerprints(alone.directory)
        assert outcome.directory == tmp_path / "out" / alone.config.name() / outcome.directory.name
    assert (tmp_path / "was-killed").exists()

    # There are logs only where something was printed.
    logs = {name: RunDirectory(each.directory).log_path for name, each in outcomes.items()}
    assert [name for name, log in logs.items() if log.exists()] == ["segfault", "raises"]
    assert "odd_learners.py" in logs["segfault"].read_text()
    log = logs["raises"].read_text()
    assert log.count("about to divide\n") == log.count("Traceback") == 2
    assert not list(tmp_path.rglob("*.tmp"))

    # Lines on standard error, as it is no terminal here.
    assert "finished before: 1; to do: 7" in shown
    assert len(re.findall(r"^started   ", shown, re.MULTILINE)) == 10
    assert "killed by SIGKILL; retrying (" in shown
    assert "(4 of 7 runs done" not in shown


@pytest.mark.slow  # two processes that import torch
def test_a_second_sweep_skips_finished_runs_and_retries_failed_ones(
    tmp_path: Path, short: dict[str, int]
) -> None:
    grid = Grid(methods=["sgd", odd("Raises")], settings=short)
    first = run_jobs(grid.jobs(), out=tmp_path, workers=1, retries=0, progress=False)
    assert [(each.status, each.attempts) for each in first] == [("finished", 1), ("failed", 1)]
    done = first[0].directory
    before = {file: file.stat().st_mtime_ns for file in done.iterdir()}
    again = run_jobs(
        [*grid.jobs(), *grid.jobs()], out=tmp_path, workers=1, retries=0, progress=False
    )
    assert [each.status for each in again] == ["already", "failed"] * 2
    assert again[0].attempts == 0
    assert {file: file.stat().st_mtime_ns for file in done.iterdir()} == before


def test_a_learner_is_found_where_this_process_finds_it(short: dict[str, int]) -> None:
    assert job(short, odd("Slow")).config.method.name == "odd_learners:Slow"
    assert odd_learners.Slow.__module__ == "odd_learners"
