"""A real Ray cluster of two nodes on this machine gives what this machine alone gives."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ray", reason="the extra deepccg[ray] is not installed")

from deepccg.core import InputError
from deepccg.experiment import resolve, run
from deepccg.experiment.session import load_checkpoint
from deepccg.records import RunDirectory, find_runs
from deepccg.sweep import Job, SweepStopped, run_jobs

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SHORT = {"stream.examples_per_class": 20}


def job(method: str, seed: int = 0, **settings: Any) -> Job:
    return Job(resolve({**SHORT, "method": method, **settings}), seed)


def test_runs_of_a_cluster_are_the_same_bits_even_if_a_worker_is_killed(
    cluster: str,
    tmp_path: Path,
    fingerprints: Callable[[Path], dict[str, str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs = {
        "er": job("er"),
        "killed": job("odd_learners:KilledOnce", 3),
        "raises": job("odd_learners:Raises"),
        "diverges": job("sgd", **{"method.lr": 1e30}),
        "sgd": job("sgd", 1),
    }
    outcomes = run_jobs(
        jobs.values(),
        out=tmp_path / "out",
        engine="ray",
        address=cluster,
        checkpoint_every=1,
        upload=f"file://{tmp_path}/there",
        progress=False,
    )
    assert (tmp_path / "was-killed").exists()  # else it is killed below, and this process with it
    found = dict(zip(jobs, outcomes, strict=True))
    assert {name: (each.status, each.attempts) for name, each in found.items()} == {
        "er": ("finished", 1),
        "killed": ("finished", 2),
        "raises": ("failed", 2),
        "diverges": ("failed", 1),
        "sgd": ("finished", 1),
    }
    assert found["raises"].error == "ZeroDivisionError: by nothing"
    log = RunDirectory(found["raises"].directory).log_path.read_text()
    assert log.count("odd_learners.py") >= 2
    assert "\x1b" not in log
    assert capsys.readouterr().out == ""
    for name in ("er", "killed", "sgd"):
        alone = run(jobs[name].config, tmp_path / "alone" / name)
        assert fingerprints(found[name].directory) == fingerprints(alone.directory)
    copied = find_runs([tmp_path / "there"])
    assert len(copied) == 3
    assert all(each.finished for each in copied)


def test_ctrl_c_makes_the_runs_of_a_cluster_save(
    cluster: str,
    tmp_path: Path,
    fingerprints: Callable[[Path], dict[str, str]],
    ctrl_c: Callable[..., AbstractContextManager[None]],
) -> None:
    fields = {"stream.examples_per_class": 40, "evaluation.every": 3}
    slow = job("odd_learners:Slower", 0, **fields)
    options: dict[str, Any] = {
        "out": tmp_path / "out",
        "engine": "ray",
        "address": cluster,
        "progress": False,
    }
    directory = tmp_path / "out" / slow.name
    learning = (directory / "records.jsonl").exists  # three steps were learned
    with ctrl_c(learning), pytest.raises(SweepStopped) as stopped:
        run_jobs([slow], **options)
    assert stopped.value.left == 1
    position = load_checkpoint(directory / "checkpoint.safetensors")[1]["position"]
    assert 0 < position < 40
    (again,) = run_jobs([slow], **options)
    assert (again.status, again.attempts) == ("finished", 1)
    alone = run(slow.config, tmp_path / "alone")
    assert fingerprints(directory) == fingerprints(alone.directory)


def test_a_run_of_a_cluster_that_lost_ctrl_c_during_its_setup_still_stops(
    cluster: str, tmp_path: Path, ctrl_c: Callable[..., AbstractContextManager[None]]
) -> None:
    deaf = job("odd_learners:Deaf", **{"stream.examples_per_class": 40})
    with ctrl_c((tmp_path / "is-made").exists), pytest.raises(SweepStopped) as stopped:
        run_jobs([deaf], out=tmp_path / "out", engine="ray", address=cluster, progress=False)
    assert stopped.value.left == 1
    saved = load_checkpoint(tmp_path / "out" / deaf.name / "checkpoint.safetensors")
    assert 0 < saved[1]["position"] < 40


def test_a_cluster_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot reach a Ray cluster at nonsense"):
        run_jobs([job("sgd")], out=tmp_path, engine="ray", address="nonsense", progress=False)
