"""Archives: directories to lines and back without loss, and damage is named."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from deepccg.records import (
    RecordError,
    RunDirectory,
    Shift,
    Timing,
    Training,
    append_record,
    append_to_archive,
    find_runs,
    timings_text,
    write_directories,
)
from deepccg.records.archive import read_archive
from deepccg.records.schema import record_from_json

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
EVALUATION = {
    "type": "evaluation",
    "step": 4,
    "examples": 40,
    "task": 0,
    "final": True,
    "images": 4,
    "of_images": 4,
    "tasks": [{"task": 0, "classes": [5], "images": 4, "task_correct": 3, "class_correct": 2}],
    "classes": [{"label": 5, "images": 4, "class_correct": 2, "task_correct": 3.0}],
}
CONFIG: dict[str, Any] = {
    "dataset": "digits",
    "seed": 0,
    "method": {"name": "er", "lr": 1e-05, "note": "naïve\n"},
    "network": {"layers": [100, 80], "affine": True},
}


def write_run(path: Path, **settings: object) -> Path:
    """A run directory with all the files that a run may have."""
    run = RunDirectory(path)
    path.mkdir(parents=True)
    run.config_path.write_text(tomli_w.dumps(CONFIG | settings), encoding="utf-8")
    append_record(run.records_path, Training(2, 1e-30, {"terms": 20, "scale": 0.1}))
    append_record(run.records_path, Shift(3, 0, "task", 4, 0.5, 2.0, 3, 2, 1))
    append_record(run.records_path, record_from_json(EVALUATION))
    run.environment_path.write_text(json.dumps({"python": "3.11", "commit": None}, indent=2) + "\n")
    run.audit_path.write_text(json.dumps({"version": 1, "passed": True}, indent=2) + "\n")
    run.timing_path.write_bytes(timings_text([Timing(4, 1.5, 0.25), Timing(2, 1.0, 0.25)]))
    return path


def files(directory: Path) -> dict[str, bytes]:
    paths = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in paths}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Three runs, one of them with nothing but its configuration and records."""
    place = tmp_path / "runs"
    write_run(place / "er" / "seed-0")
    write_run(place / "er" / "seed-1", seed=1, evaluation={"every": "end"})
    bare = write_run(place / "sgd" / "seed-0", memory=3, evaluation={"every": 5})
    for name in ("environment.json", "audit.json", "timing.json"):
        (bare / name).unlink()
    return place


@pytest.mark.parametrize("ending", ENDINGS)
def test_directories_come_back_byte_for_byte(tmp_path: Path, runs: Path, ending: str) -> None:
    archive = tmp_path / f"all{ending}"
    assert append_to_archive(archive, find_runs([runs])) == 3
    write_directories(find_runs([archive]), tmp_path / "back")
    assert files(tmp_path / "back") == files(runs)
    again = tmp_path / f"again{ending}"
    append_to_archive(again, find_runs([tmp_path / "back"]))
    assert [run.line for run in read_archive(again)] == [run.line for run in read_archive(archive)]


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_archived_run_reads_as_its_directory_does(
    tmp_path: Path, runs: Path, ending: str
) -> None:
    archive = tmp_path / f"all{ending}"
    append_to_archive(archive, find_runs([runs]))
    for archived, run in zip(find_runs([archive]), find_runs([runs]), strict=True):
        assert archived.path.relative_to(archive) == run.path.relative_to(runs)
        for name in (
            "config",
            "records",
            "evaluations",
            "shifts",
            "audit",
            "environment",
            "timing",
        ):
            assert getattr(archived, name)() == getattr(run, name)()
        assert archived.finished


def test_a_line_holds_what_the_files_hold(tmp_path: Path, runs: Path) -> None:
    append_to_archive(tmp_path / "runs.jsonl", find_runs([runs / "er" / "seed-0"]))
    (line,) = (tmp_path / "runs.jsonl").read_text().splitlines()
    content, directory = json.loads(line), runs / "er" / "seed-0"
    assert content == {
        "run": "er/seed-0",  # the last two parts of the path, wherever it was
        "config": tomllib.loads((directory / "config.toml").read_text(encoding="utf-8")),
        "environment": json.loads((directory / "environment.json").read_text()),
        "audit": json.loads((directory / "audit.json").read_text()),
        "timing": json.loads((directory / "timing.json").read_text()),
        "records": [json.loads(r) for r in (directory / "records.jsonl").read_text().splitlines()],
    }


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_new_run_is_one_added_line(tmp_path: Path, runs: Path, ending: str) -> None:
    archive = tmp_path / f"runs{ending}"
    append_to_archive(archive, find_runs([runs / "er"]))
    before = archive.read_bytes()
    assert append_to_archive(archive, find_runs([runs / "er"])) == 0
    assert archive.read_bytes() == before
    assert append_to_archive(archive, find_runs([runs])) == 1
    names = [run.name for run in read_archive(archive)]
    assert names == ["er/seed-0", "er/seed-1", "sgd/seed-0"]
    if ending != ".parquet":
        assert archive.read_bytes().startswith(before)


def test_a_missing_line_end_is_added(tmp_path: Path, runs: Path) -> None:
    archive = tmp_path / "runs.jsonl"
    append_to_archive(archive, find_runs([runs / "er"]))
    archive.write_bytes(archive.read_bytes().removesuffix(b"\n"))
    append_to_archive(archive, find_runs([runs]))
    assert len(read_archive(archive)) == 3


def test_another_run_of_the_same_name_is_refused_and_nothing_written(
    tmp_path: Path, runs: Path
) -> None:
    archive = tmp_path / "runs.jsonl"
    append_to_archive(archive, find_runs([runs / "er"]))
    before = archive.read_bytes()
    write_run(tmp_path / "other" / "a" / "seed-0")
    write_run(tmp_path / "other" / "er" / "seed-0", dataset="cifar10")
    with pytest.raises(RecordError, match=r"there is another run er/seed-0; archive .*other"):
        append_to_archive(archive, find_runs([tmp_path / "other"]))
    assert archive.read_bytes() == before


def test_nothing_is_written_over_a_run_directory(tmp_path: Path, runs: Path) -> None:
    before = files(runs)
    write_run(tmp_path / "more" / "a" / "seed-0")
    found = find_runs([tmp_path / "more", runs / "sgd"])
    with pytest.raises(RecordError, match=r"sgd/seed-0 is there already"):
        write_directories(found, runs)
    assert files(runs) == before


def test_a_table_for_pandas(tmp_path: Path, runs: Path) -> None:
    pandas = pytest.importorskip("pandas")
    append_to_archive(tmp_path / "runs.parquet", find_runs([runs]))
    table = pandas.read_parquet(tmp_path / "runs.parquet").set_index("run")
    assert table["seed"].tolist() == [0, 1, 0]
    assert table["method.lr"].tolist() == [1e-05] * 3
    assert table["class_accuracy"].tolist() == [0.5] * 3
    assert table["learning_seconds"].isna().tolist() == [False, False, True]
    assert table["evaluation.every"].tolist()[1:] == ['"end"', "5"]  # of two types: as JSON
    assert table["network.layers"].iloc[0].tolist() == [100, 80]


def line_with(**changes: object) -> bytes:
    good = {"run": "a/b", "config": {}, "environment": None, "audit": None, "timing": None}
    return json.dumps(good | {"records": []} | changes).encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"", "Expecting value"),
        (b"<<<<<<< HEAD", "Expecting value"),
        (b"\xff\xff", "decode"),
        (b"[" * 100_000, "nested too deeply"),
        (b"[]", "a line is an object with the keys run, config"),
        (line_with(more=1), "a line is an object with the keys run, config"),
        (line_with(config=[]), "config must be an object"),
        (line_with(records={}), "records a list"),
        (line_with(audit=3), "audit must be an object or null"),
        (line_with(run="../../etc"), r"a relative path, not '\.\./\.\./etc'"),
        (line_with(run="/etc/x"), "a relative path, not '/etc/x'"),
        (line_with(run="a\\..\\b"), "a relative path"),
        (line_with(run="C:/b"), "a relative path"),
        (line_with(run=""), "a relative path"),
        (line_with(run="a\nb"), "a relative path"),
        (line_with(run=3), "a relative path, not 3"),
        (line_with(), "line 3: the run a/b is there already"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: bytes, message: str) -> None:
    archive = tmp_path / "runs.jsonl"
    archive.write_bytes(b"\n".join([line_with(), line_with(run="c/d"), line, b""]))
    with pytest.raises(RecordError, match=message) as error:
        find_runs([archive])
    assert str(error.value).startswith(f"{archive}, line 3: ")
    assert "\n" not in str(error.value)


def test_broken_records_are_named_when_they_are_read(tmp_path: Path) -> None:
    archive = tmp_path / "runs.jsonl"
    archive.write_bytes(line_with(records=[EVALUATION, EVALUATION | {"step": -1}]) + b"\n")
    (run,) = find_runs([archive])
    with pytest.raises(RecordError, match=r"runs\.jsonl, line 1: step should be"):
        run.evaluations()


def test_damaged_times_of_an_archived_run_are_not_known(tmp_path: Path) -> None:
    archive = tmp_path / "runs.jsonl"
    archive.write_bytes(line_with(timing={"version": 1, "steps": -1}) + b"\n")
    assert find_runs([archive])[0].timing() is None


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("content", [b"\x1f\x8b broken", b"PAR1", b"text"])
def test_what_is_not_an_archive_is_one_line(tmp_path: Path, ending: str, content: bytes) -> None:
    archive = tmp_path / f"runs{ending}"
    archive.write_bytes(content)
    with pytest.raises(RecordError, match=rf"runs{ending}") as error:
        find_runs([archive])
    assert "\n" not in str(error.value)


def test_a_truncated_archive_is_refused(tmp_path: Path, runs: Path) -> None:
    for ending in (".jsonl", ".jsonl.gz", ".parquet"):
        archive = tmp_path / f"runs{ending}"
        append_to_archive(archive, find_runs([runs]))
        archive.write_bytes(archive.read_bytes()[:-20])
        with pytest.raises(RecordError):
            find_runs([archive])


def test_a_table_without_lines_is_not_an_archive(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"a": [1]}).to_parquet(tmp_path / "other.parquet")
    with pytest.raises(RecordError, match=r"other\.parquet is not an archive of runs"):
        find_runs([tmp_path / "other.parquet"])


def test_what_json_does_not_have_is_not_archived(tmp_path: Path) -> None:
    for name, value in (("nan", "nan"), ("date", "2026-01-01")):
        directory = write_run(tmp_path / name / "seed-0")
        (directory / "config.toml").write_text(f"lr = {value}\n")
        with pytest.raises(RecordError, match="cannot be archived"):
            append_to_archive(tmp_path / "runs.jsonl", find_runs([directory]))
    assert not (tmp_path / "runs.jsonl").exists()


def test_directories_and_archives_are_found_together(tmp_path: Path, runs: Path) -> None:
    append_to_archive(tmp_path / "more.jsonl", find_runs([runs / "er"]))
    found = find_runs([runs, tmp_path / "more.jsonl", tmp_path / "more.jsonl"])
    assert [run.path.relative_to(tmp_path).parts[0] for run in found] == ["more.jsonl"] * 2 + [
        "runs"
    ] * 3
    with pytest.raises(RecordError, match=r"cannot read .*nothing\.jsonl: No such file"):
        find_runs([tmp_path / "nothing.jsonl"])
    with pytest.raises(RecordError, match=r"notes\.txt is not a directory of runs, nor an archive"):
        find_runs([tmp_path / "notes.txt"])
