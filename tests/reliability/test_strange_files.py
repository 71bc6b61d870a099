"""Run directories from strangers, with pipes, devices, links and the like in the files' places.

Nothing waits, nothing is read without end, nothing is written outside: one line names the file.
"""

import gzip
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from deepccg.core import DeepCCGError, StepInfo
from deepccg.experiment import load, request_stop, resolve, resume, run
from deepccg.records import RecordError, RunDirectory, append_record, find_runs
from deepccg.records.schema import Training
from deepccg.sweep import Job, run_jobs
from deepccg.sweep.upload import Upload

pytestmark = pytest.mark.timeout(60)  # a pipe would be waited for

FILES = (
    "config.toml", "records.jsonl", "checkpoint.safetensors", "previous.safetensors", ".lock",
    "audit.json", "environment.json", "timing.json", "log.txt", "tracking.json",
)  # fmt: skip
QUICK = {"stream.examples_per_class": 4, "method": "er", "method.lr": 0.01}

Plant = Callable[[Path, Path], None]


def pipe(path: Path, _outside: Path) -> None:
    os.mkfifo(path)


def zeros(path: Path, _outside: Path) -> None:
    path.symlink_to("/dev/zero")


def new_file_outside(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "new")


def file_outside(path: Path, outside: Path) -> None:
    path.symlink_to(outside / "victim")


def directory(path: Path, _outside: Path) -> None:
    path.mkdir()


def listener(path: Path, _outside: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        here = Path.cwd()
        os.chdir(path.parent)  # a socket's path has at most 108 bytes
        bound.bind(path.name)
        os.chdir(here)


def no_config(name: str, plant: Plant) -> bool:
    """Whether there is nothing by which a run could be found below a directory."""
    return name == "config.toml" and plant is new_file_outside


KINDS = (pipe, zeros, new_file_outside, file_outside, directory, listener)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One that is finished, with all its files, and one that was interrupted."""
    place = tmp_path_factory.mktemp("runs")
    finished = place / "finished" / "seed-0"
    run(directory=finished, track="tensorboard", checkpoint_every=1, **QUICK)

    def stop(step: int, _total: int, _info: StepInfo) -> None:
        if step == 2:
            request_stop()

    begun = place / "begun" / "seed-0"
    with pytest.raises(KeyboardInterrupt):
        run(directory=begun, progress=stop, **QUICK)
    return {"finished": finished, "begun": begun}


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A directory in which nothing may change."""
    place = tmp_path / "outside"
    place.mkdir()
    (place / "victim").write_text("mine")
    yield place
    assert [file.name for file in place.iterdir()] == ["victim"]
    assert (place / "victim").read_text() == "mine"


def planted(origin: Path, place: Path, name: str, plant: Plant, outside: Path) -> Path:
    """A copy of a run in which one file is something else."""
    copy = Path(shutil.copytree(origin, place / origin.parent.name / "seed-0"))
    (copy / name).unlink(missing_ok=True)
    plant(copy / name, outside)
    return copy


@pytest.mark.parametrize("plant", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_resume_load_and_predict_name_the_file(
    runs: dict[str, Path],
    tmp_path: Path,
    outside: Path,
    command: Callable[..., Any],
    name: str,
    plant: Plant,
) -> None:
    image = tmp_path / "image.png"
    Image.new("L", (8, 8)).save(image)
    begun = planted(runs["begun"], tmp_path, name, plant, outside)
    finished = planted(runs["finished"], tmp_path, name, plant, outside)
    for arguments in (("resume", begun), ("predict", finished, image)):
        said = command(*arguments)
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith("Error: ")
        assert said.err.count("\n") == 1
        assert f"{name} is not a regular file" in said.err or no_config(name, plant)
    for entry in (load, resume):
        with pytest.raises((DeepCCGError, RecordError), match=f"{name} is not a regular file"):
            entry(begun)


@pytest.mark.slow
@pytest.mark.parametrize("plant", KINDS)
@pytest.mark.parametrize("name", FILES)
def test_report_archive_and_reproduce_do_not_wait(
    runs: dict[str, Path],
    tmp_path: Path,
    outside: Path,
    command: Callable[..., Any],
    name: str,
    plant: Plant,
) -> None:
    """Runs with such a file among what is read are left out; the file is named."""
    copy = planted(runs["finished"], tmp_path / "runs", name, plant, outside)
    read = ("config.toml", "records.jsonl", "audit.json", "environment.json", "timing.json")
    for arguments in (("report", copy), ("archive", copy, "--to", "runs.jsonl")):
        said = command(*arguments)
        assert said.code == (2 if name in read else 0)
        named = f"{name} is not a regular file" in said.err
        assert named or not said.code or no_config(name, plant)
    said = command("reproduce", "table1", "--quick", "--dry-run", "--reuse", copy)
    assert said.code == 0


def test_one_strange_run_among_good_ones(
    runs: dict[str, Path], tmp_path: Path, outside: Path, command: Callable[..., Any]
) -> None:
    planted(runs["finished"], tmp_path / "bad", "records.jsonl", pipe, outside)
    said = command("report", tmp_path / "bad", runs["finished"])
    assert said.code == 0
    assert said.out == "Report of 1 run: report.html\n"
    assert said.err.startswith("Warning: left out: ")
    assert "records.jsonl is not a regular file" in said.err


@pytest.mark.parametrize(
    ("name", "size"),
    [("records.jsonl", 1 << 41), ("config.toml", 1 << 41), ("checkpoint.safetensors", 1 << 41)],
)
def test_sizes_are_looked_at_first(
    runs: dict[str, Path], tmp_path: Path, command: Callable[..., Any], name: str, size: int
) -> None:
    """Holes: two terabytes that take no room on the disk."""
    copy = Path(shutil.copytree(runs["begun"], tmp_path / "copy"))
    os.truncate(copy / name, size)
    said = command("resume", copy)
    assert (said.code, said.out) == (2, "")
    assert f"{name} has 2,199,023,255,552 bytes, more than" in said.err


def test_a_record_is_not_appended_through_a_link(tmp_path: Path, outside: Path) -> None:
    record = Training(1, 0.1)
    for name, target in (("a", "new"), ("b", "victim")):
        (tmp_path / name).symlink_to(outside / target)
        with pytest.raises(RecordError, match="is not a regular file"):
            append_record(tmp_path / name, record)


@pytest.mark.slow  # a worker process that imports torch
@pytest.mark.parametrize("plant", [new_file_outside, pipe])
def test_a_log_is_not_written_through_a_link(tmp_path: Path, outside: Path, plant: Plant) -> None:
    job = Job(resolve(QUICK), 0)
    (tmp_path / "out" / job.name).mkdir(parents=True)
    plant(tmp_path / "out" / job.name / "log.txt", outside)
    (outcome,) = run_jobs([job], out=tmp_path / "out", workers=1)
    assert outcome.status == "failed"
    assert "log.txt is not a regular file" in (outcome.error or "")


def test_an_upload_takes_no_links(runs: dict[str, Path], tmp_path: Path, outside: Path) -> None:
    copy = planted(runs["finished"], tmp_path / "out", "notes.txt", file_outside, outside)
    Upload(str(tmp_path / "bucket"), tmp_path / "out").copy(copy)
    names = {file.name for file in (tmp_path / "bucket" / "finished" / "seed-0").iterdir()}
    assert {"config.toml", "records.jsonl"} <= names
    assert "notes.txt" not in names


def test_an_archive_that_is_a_pipe(tmp_path: Path) -> None:
    for ending in (".jsonl", ".jsonl.gz", ".parquet"):
        os.mkfifo(tmp_path / f"runs{ending}")
        with pytest.raises(RecordError, match="is not a regular file"):
            find_runs([tmp_path / f"runs{ending}"])


def test_an_archive_that_unpacks_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A megabyte for each kilobyte; the limit is lowered so that this takes no time."""
    monkeypatch.setattr("deepccg.records.archive.LARGEST", 4 << 20)
    (tmp_path / "runs.jsonl.gz").write_bytes(gzip.compress(bytes(64 << 20)))
    with pytest.raises(RecordError, match=r"jsonl\.gz unpacks to more than 4,194,304 bytes"):
        find_runs([tmp_path / "runs.jsonl.gz"])


def test_links_that_the_user_names_are_followed(
    runs: dict[str, Path], tmp_path: Path, command: Callable[..., Any]
) -> None:
    (tmp_path / "latest").symlink_to(runs["finished"])
    assert RunDirectory(tmp_path / "latest").finished
    assert command("report", tmp_path / "latest").code == 0
    assert command("archive", tmp_path / "latest", "--to", tmp_path / "runs.jsonl").code == 0
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "runs.jsonl")
    assert command("report", tmp_path / "link.jsonl").code == 0
