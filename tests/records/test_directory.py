"""The file of records: written and read back; a torn last line is ignored, damage an error."""

import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepccg.records import (
    ClassScore,
    Evaluation,
    RecordError,
    RunDirectory,
    TaskScore,
    Training,
    append_record,
    find_runs,
    read_records,
    rewind_records,
    write_atomically,
)


def evaluation(step: int, final: bool = False) -> Evaluation:
    return Evaluation(
        step=step,
        examples=10 * step,
        task=0,
        final=final,
        images=4,
        of_images=4,
        tasks=(TaskScore(0, (5,), 4, 3, 2),),
        classes=(ClassScore(5, 4, 2, 3.0),),
    )


RECORDS = [
    Training(1, 0.1, {"norm": 1 / 3}),
    evaluation(2),
    Training(3, 1e-30),
    evaluation(4, True),
]


def written(path):
    for record in RECORDS:
        append_record(path, record)
    return path


def test_appended_records_are_read_back_exactly(tmp_path):
    path = written(tmp_path / "records.jsonl")
    assert read_records(path) == RECORDS
    types = [json.loads(line)["type"] for line in path.read_text().splitlines()]
    assert types == ["training", "evaluation", "training", "evaluation"]


@settings(deadline=None)
@given(st.data())
def test_cutting_the_file_anywhere_loses_only_the_last_record(tmp_path_factory, data):
    path = written(tmp_path_factory.mktemp("cut") / "records.jsonl")
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    complete = whole[:cut].count(b"\n")
    kept = read_records(path)
    # without its line end a record is still whole; with anything less it is torn
    assert kept in (RECORDS[:complete], RECORDS[: complete + 1])
    assert len(kept) == complete or whole[cut : cut + 1] == b"\n"

    append_record(path, RECORDS[0])  # heals the end, loses nothing that could be read
    assert read_records(path) == [*kept, RECORDS[0]]
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.parametrize(
    "line", [b'{"type":"evalu', b"", b"[1]", b'{"type":"training","step":1}', b"\xff\xfe", b"NaN"]
)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_broken_line_is_named(tmp_path, line, place):
    path = written(tmp_path / "records.jsonl")
    lines = path.read_bytes().split(b"\n")
    lines.insert(place, line)
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(RecordError, match=rf"records\.jsonl, line {place + 1}: "):
        read_records(path)


def test_nan_cannot_enter_through_the_file(tmp_path):
    path = tmp_path / "records.jsonl"
    path.write_text('{"type": "training", "step": 1, "loss": NaN, "extra": {}}\n')
    with pytest.raises(RecordError, match="line 1: loss should be a finite number"):
        read_records(path)


def test_a_missing_file_is_one_clear_line(tmp_path):
    with pytest.raises(RecordError, match=r"cannot read .*nothing\.jsonl: No such file"):
        read_records(tmp_path / "nothing.jsonl")


@pytest.mark.parametrize("step", range(6))
def test_rewinding_keeps_the_records_up_to_a_step(tmp_path, step):
    path = written(tmp_path / "records.jsonl")
    with path.open("ab") as file:
        file.write(b'{"type": "torn')
    rewind_records(path, step)
    assert read_records(path) == [record for record in RECORDS if record.step <= step]
    for record in RECORDS:
        if record.step > step:
            append_record(path, record)
    assert path.read_bytes() == written(tmp_path / "uninterrupted.jsonl").read_bytes()


def test_rewinding_before_anything_was_written(tmp_path):
    rewind_records(tmp_path / "records.jsonl", 3)
    assert not list(tmp_path.iterdir())


def test_a_run_directory_reads_what_is_there(tmp_path):
    run = RunDirectory(tmp_path)
    assert run.records() == []
    assert not run.finished
    with pytest.raises(RecordError, match=r"cannot read .*config\.toml"):
        run.config()

    run.config_path.write_text('[method]\nname = "er"\n')
    append_record(run.records_path, RECORDS[0])
    append_record(run.records_path, evaluation(2))
    assert run.config() == {"method": {"name": "er"}}
    assert run.evaluations() == [evaluation(2)]
    assert not run.finished
    append_record(run.records_path, evaluation(4, final=True))
    assert run.finished

    run.config_path.write_text("[method\n")
    with pytest.raises(RecordError, match="not valid TOML"):
        run.config()


def test_runs_are_found_once_and_in_order(tmp_path):
    for name in ("b/seed1", "b/seed0", "a", "b/not-a-run"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("b/seed1", "b/seed0", "a"):
        (tmp_path / name / "config.toml").touch()
    runs = find_runs([tmp_path / "b", tmp_path])
    assert [run.path for run in runs] == [tmp_path / p for p in ("a", "b/seed0", "b/seed1")]
    assert find_runs([tmp_path / "a"]) == [RunDirectory(tmp_path / "a")]
    assert find_runs([tmp_path / "b" / "not-a-run"]) == []
    with pytest.raises(RecordError, match="not a directory"):
        find_runs([tmp_path / "c"])


def test_an_atomic_write_replaces_all_or_nothing(tmp_path):
    path = tmp_path / "new" / "file.bin"
    write_atomically(path, b"old")
    with pytest.raises(TypeError):
        write_atomically(path, "text is not bytes")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new")
    assert [p.name for p in path.parent.iterdir()] == ["file.bin"]
    assert path.read_bytes() == b"new"


def test_records_need_no_torch():
    code = "import sys, deepccg.records; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
