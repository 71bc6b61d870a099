"""A full disk is one line that names the file; what was there is good, and things can go on."""

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killing import QUICK, Forks, Moment, Outcome, Whole, fingerprint

from deepccg import DeepCCGClassifier
from deepccg.experiment import run
from deepccg.experiment.session import load_checkpoint
from deepccg.records import is_temporary

LINE = re.compile(
    r"Error: cannot write (?P<what>\S+): No space left on device; "
    r"(the checkpoint of step (?P<step>\d+) is good|there is no checkpoint yet)\. "
    r"When there is room, continue with `deepccg (?P<command>resume \S+)`\n"
)
BEGIN = re.compile(r"Error: cannot write to \S+: No space left on device\n")


@pytest.mark.slow  # two runs for each example
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(place=st.floats(0, 1, exclude_max=True), part=st.floats(0, 1))
def test_a_full_disk_is_reported_and_nothing_is_damaged(
    forks: Forks,
    whole: Callable[[str], Whole],
    tmp_path_factory: pytest.TempPathFactory,
    place: float,
    part: float,
) -> None:
    expected = whole("deepccg")
    check(forks, expected, tmp_path_factory.mktemp("full"), int(place * len(expected.calls)), part)


@pytest.mark.slow  # two runs for each call
def test_every_call_of_a_checkpoint_and_a_record_may_fail(
    forks: Forks, whole: Callable[[str], Whole], tmp_path_factory: pytest.TempPathFactory
) -> None:
    expected = whole("deepccg")
    record = expected.calls.index("......", expected.calls.index("c"))  # and before it the times
    for call in range(record - 1, record + 7):
        check(forks, expected, tmp_path_factory.mktemp("full"), call, 0.5)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A function that makes a real disk of so many KiB, or gives it that size."""
    place, mounted = tmp_path / "disk", False

    def of_size(kib: int) -> Path:
        nonlocal mounted
        place.mkdir(exist_ok=True)
        size = f"{'remount,' if mounted else ''}size={kib}k"
        command = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(place)]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("mounting a tmpfs is not permitted here; write errors are injected above")
        mounted = True
        return place

    yield of_size
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


@pytest.mark.slow  # two runs each
@pytest.mark.parametrize("kib", [4, 60, 120, 200])
def test_a_small_disk(
    forks: Forks, whole: Callable[[str], Whole], small_disk: Callable[[int], Path], kib: int
) -> None:
    """Nothing is injected: the kernel says that there is no room."""
    expected = whole("deepccg")
    place = small_disk(kib)
    done = forks(["run", "--method", "deepccg", *QUICK], str(place), None)
    check_message(forks, expected, small_disk(64 * 1024), done)


NO_ROOM = "No space left on device"


def test_a_classifier_that_does_not_fit(small_disk: Callable[[int], Path]) -> None:
    """The error names the file, the one before is whole, and nothing else is left."""
    small, large = (fitted(memory) for memory in (5, 500))
    path = small_disk(256) / "model"
    small.save(path)
    before = path.read_bytes()
    small_disk(len(before) // 1024 + 8)
    for _ in range(2):
        with pytest.raises(OSError, match=NO_ROOM) as caught:
            large.save(path)
        assert caught.value.filename == str(path)
        assert [file.name for file in path.parent.iterdir()] == ["model"]
        assert path.read_bytes() == before
        assert DeepCCGClassifier.load(path).memory == 5
    small_disk(8 * 1024)
    large.save(path)
    assert DeepCCGClassifier.load(path).memory == 500


def fitted(memory: int) -> DeepCCGClassifier:
    rng = np.random.default_rng(0)
    model = DeepCCGClassifier(memory=memory, random_state=0)
    return model.partial_fit(rng.normal(size=(600, 30)), rng.integers(0, 5, 600))


def test_a_page_or_an_archive_that_does_not_fit(
    small_disk: Callable[[int], Path], tmp_path: Path, command: Callable[..., Any]
) -> None:
    run(directory=tmp_path / "run", **{"method": "sgd", "stream.examples_per_class": 4})
    place = small_disk(8)
    old = {place / "page.html": b"old page", place / "runs.jsonl": b""}
    for path, content in old.items():
        path.write_bytes(content)
    for arguments, path in (
        (("report", tmp_path / "run", "--out", place / "page.html"), place / "page.html"),
        (("archive", tmp_path / "run", "--to", place / "runs.jsonl"), place / "runs.jsonl"),
        (("archive", tmp_path / "run", "--to", place / "runs"), place / "runs"),
    ):
        fill = place / "fill"
        with contextlib.suppress(OSError), fill.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        said = command(*arguments)
        assert (said.code, said.out) == (2, "")
        assert re.fullmatch(rf"Error: {path}\S*: {NO_ROOM}\n", said.err)
        fill.unlink()
        assert {path: path.read_bytes() for path in old} == old
        assert not [file for file in place.rglob("*") if is_temporary(file)]
    small_disk(1024)
    for arguments in (("--to", place / "runs"), ("--to", place / "runs.jsonl")):
        assert command("archive", tmp_path / "run", *arguments).code == 0  # nothing is in the way


def test_output_that_has_no_room() -> None:
    code = "from deepccg.cli import main; import sys; sys.argv[1:] = ['version']; main()"
    command = [sys.executable, "-c", code]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 2
    assert done.stderr.decode() == f"Error: standard output: {NO_ROOM}\n"


@pytest.mark.slow  # workers that import torch
def test_a_search_on_a_small_disk(forks: Forks, small_disk: Callable[[int], Path]) -> None:
    """It writes no preset: a point that had no room was not tried."""
    tune = ["tune", "--method", "sgd", "--space", "lr=0.1,0.01", "--seeds", "0", "-j", "1"]
    tune += ["--set", "stream.examples_per_class=20", "--out", "out", "--write", "t.toml"]
    place = small_disk(44)
    done = forks(tune, str(place), None)
    assert (done.status, done.out) == (2, "")
    *_, last = done.err.splitlines()
    assert re.fullmatch(
        rf"Error: cannot write .*: {NO_ROOM}.*The search stopped, as .*the same command continues",
        last,
    )
    assert not (place / "t.toml").exists()
    assert not [file for file in place.rglob("*") if is_temporary(file)]
    small_disk(64 * 1024)
    done = forks(tune, str(place), None)
    assert done.status == 0, done.err
    assert "failed" not in (place / "t.toml").read_text()


def check(forks: Forks, expected: Whole, place: Path, call: int, part: float) -> None:
    command = ["run", "--method", "deepccg", *QUICK]
    done = forks(command, str(place), Moment(call=call, act="full", part=part))
    check_message(forks, expected, place, done)


def check_message(forks: Forks, expected: Whole, place: Path, done: Outcome) -> None:
    command = ["run", "--method", "deepccg", *QUICK]
    assert (done.status, done.out) == (2, "")
    (directory,) = (place / "out").glob("*/seed-0")
    names = {file.name for file in directory.iterdir()}
    assert not any(name.endswith(".tmp") or name == ".lock" for name in names)
    found = LINE.fullmatch(done.err)
    if found is None:
        assert BEGIN.fullmatch(done.err)  # before the first step
        assert not names & {"records.jsonl", "checkpoint.safetensors"}
    else:
        command = found["command"].split()
        newest = next(
            (directory / name for name in ("checkpoint.safetensors", "previous.safetensors")
             if name in names), None,
        )  # fmt: skip
        step = int(found["step"] or 0)
        assert (newest is None) == (step == 0)
        if newest is not None:  # the new one may be there already: only its name is not yet durable
            assert load_checkpoint(newest)[1]["position"] in (step, step + 1)
        records = directory / "records.jsonl"
        lines = records.read_bytes().splitlines(keepends=True) if records.exists() else []
        assert all(line.endswith(b"\n") and json.loads(line) for line in lines)
    done = forks(command, str(place), None)
    assert (done.status, done.out) == (0, expected.out)
    assert fingerprint(directory) == expected.files
