"""A full disk ends a run with one line; what was saved is good, and the run can go on."""

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killing import QUICK, Forks, Moment, Outcome, Whole, fingerprint

from deepccg.experiment.session import load_checkpoint

LINE = re.compile(
    r"Error: cannot write (?P<what>\S+): No space left on device; "
    r"(the checkpoint of step (?P<step>\d+) is good|there is no checkpoint yet)\. "
    r"When there is room, continue with `deepccg (?P<command>resume \S+)`\n"
)
BEGIN = re.compile(r"Error: cannot write to \S+: No space left on device\n")


@pytest.mark.slow  # two runs for each example
@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
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
