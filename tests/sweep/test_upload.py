"""Uploads: whole runs or none, through real file systems of fsspec."""

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from deepccg.core import InputError
from deepccg.experiment import resolve, run
from deepccg.records import RunDirectory, find_runs
from deepccg.sweep import Grid, run_jobs
from deepccg.sweep.job import JobResult
from deepccg.sweep.upload import Upload

DONE = JobResult("finished")
COPIED = {
    "audit.json",
    "checkpoint.safetensors",
    "config.toml",
    "environment.json",
    "records.jsonl",
    "timing.json",
}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of runs with one in it."""
    place = tmp_path_factory.mktemp("out")
    config = resolve({"method": "sgd", "stream.examples_per_class": 20})
    run(config, place / config.name() / "seed-0", checkpoint_every=1)
    return place


@pytest.fixture
def finished(out: Path) -> Path:
    (found,) = find_runs([out])
    return found.path


class Failing(LocalFileSystem):
    """A local file system whose connection breaks after some calls."""

    protocol = "failing"
    calls_left: ClassVar[int] = 0

    def _call(self) -> None:
        if Failing.calls_left == 0:
            raise ConnectionResetError("Connection reset by peer")
        Failing.calls_left -= 1

    def put_file(self, *arguments: object, **options: object) -> None:
        self._call()
        super().put_file(*arguments, **options)

    def mv(self, *arguments: object, **options: object) -> None:
        self._call()
        super().mv(*arguments, **options)


@pytest.fixture
def failing() -> Iterator[type[Failing]]:
    fsspec.register_implementation("failing", Failing, clobber=True)
    yield Failing
    Failing.calls_left = 0


def test_a_run_is_copied_once(out: Path, finished: Path) -> None:
    root = f"/{uuid.uuid4().hex}"
    upload = Upload(f"memory:/{root}/runs", out)
    assert upload.after(DONE, finished) == DONE
    memory = fsspec.filesystem("memory")
    place = f"{root}/runs/{finished.parent.name}/seed-0"
    assert {Path(path).name for path in memory.find(root)} == COPIED
    for name in COPIED:
        assert memory.cat_file(f"{place}/{name}") == (finished / name).read_bytes()
    assert (finished / "previous.safetensors").exists()  # and stays here
    assert upload.copy(finished) is False  # it is there


@pytest.mark.slow  # a process that imports torch
def test_a_sweep_uploads_what_finishes_and_what_was_finished(
    tmp_path: Path, short: dict[str, int]
) -> None:
    jobs = Grid(methods="sgd", seeds="0-1", settings=short).jobs()
    run(jobs[0].config, tmp_path / "out" / jobs[0].name)
    root = f"memory://{uuid.uuid4().hex}"
    options = {"out": tmp_path / "out", "workers": 1, "upload": root, "progress": False}
    assert [each.status for each in run_jobs(jobs, **options)] == ["already", "finished"]
    memory = fsspec.filesystem("memory")
    there = {path.partition("/digits")[2] for path in memory.find(root)}
    assert len(there) == 2 * len(COPIED)
    assert all(memory.exists(f"{root}/{job.name}/config.toml") for job in jobs)


def test_a_broken_connection_never_leaves_half_a_run(
    tmp_path: Path, out: Path, finished: Path, failing: type[Failing]
) -> None:
    upload = Upload(f"failing://{tmp_path}/there", out)
    needed = len(COPIED) + 1  # the files, config.toml last, and then its proper name
    for calls in range(needed):
        failing.calls_left = calls
        result = upload.after(DONE, finished)
        assert (result.status, result.retryable) == ("failed", True)
        assert result.error == (
            f"the run is finished, but could not be copied to failing://{tmp_path}/there: "
            f"Connection reset by peer"
        )
        assert find_runs([tmp_path]) == []
    failing.calls_left = needed
    assert upload.after(DONE, finished) == DONE
    (copied,) = find_runs([tmp_path / "there"])
    assert copied.path == tmp_path / "there" / finished.relative_to(out)
    assert copied.finished
    assert copied.evaluations() == RunDirectory(finished).evaluations()
    assert {file.name for file in copied.path.iterdir()} == COPIED


def test_unfinished_runs_are_not_copied(tmp_path: Path, out: Path, finished: Path) -> None:
    upload = Upload(f"file://{tmp_path}/there", out)
    for result in (JobResult("failed", "why"), JobResult("stopped")):
        assert upload.after(result, finished) == result
    assert not (tmp_path / "there").exists()


@pytest.mark.parametrize("url", ["nosuch://bucket/runs", "s4://x"])
def test_an_unknown_url_is_rejected_before_any_run(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match=f"cannot upload to '{url}'"):
        run_jobs(Grid(methods="sgd").jobs(), out=tmp_path / "out", upload=url)
    assert not (tmp_path / "out").exists()
