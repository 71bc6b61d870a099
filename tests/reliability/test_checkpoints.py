"""Checkpoints: two are kept, each is verified, and damage costs a few steps at most."""

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepccg.core import InputError, State, StateMismatch
from deepccg.experiment import CheckpointWarning, load, load_run, run
from deepccg.experiment.session import load_checkpoint
from deepccg.experiment.writer import CheckpointSchedule
from deepccg.learners import state_file
from deepccg.learners.state_file import save_state
from deepccg.records import RecordError, write_atomically

DIGITS: dict[str, Any] = {"method": "er", "stream.examples_per_class": 20}
NEWEST, PREVIOUS = "checkpoint.safetensors", "previous.safetensors"


class Stop(Exception):
    """Whatever ends a process."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DEEPCCG_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


def stop_at(step: int):
    def progress(now: int, *_: object) -> None:
        if now == step:
            raise Stop

    return progress


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that died in its tenth step: saved after the sixth and the ninth."""
    directory = tmp_path_factory.mktemp("half") / "run"
    with pytest.raises(Stop):
        run(directory=directory, progress=stop_at(10), checkpoint_every=3, **DIGITS)
    return directory


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    directory = tmp_path_factory.mktemp("whole") / "run"
    run(directory=directory, **DIGITS)
    return contents(directory)


def contents(directory: Path) -> dict[str, bytes]:
    left_out = {PREVIOUS, "timing.json"}
    files = [file for file in directory.iterdir() if file.name not in left_out]
    return {file.name: file.read_bytes() for file in files}


def continued(directory: Path) -> tuple[list[int], list[str]]:
    """The steps that were taken, and the warnings."""
    steps: list[int] = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", CheckpointWarning)
        run(directory=directory, progress=lambda now, *_: steps.append(now), **DIGITS)
    return steps, [str(each.message) for each in warned if each.category is CheckpointWarning]


def test_the_checkpoint_before_the_last_is_kept(half: Path) -> None:
    assert load_checkpoint(half / NEWEST)[1]["position"] == 9
    assert load_checkpoint(half / PREVIOUS)[1]["position"] == 6


@pytest.mark.parametrize("damage", ["cut", "flipped", "zeros", "gone", "pickle"])
def test_a_damaged_newest_checkpoint_costs_a_few_steps(
    half: Path, whole: dict[str, bytes], tmp_path: Path, damage: str
) -> None:
    directory = Path(shutil.copytree(half, tmp_path / "run"))
    newest = directory / NEWEST
    content = bytearray(newest.read_bytes())
    if damage == "cut":
        newest.write_bytes(content[:-10])
    elif damage == "flipped":
        content[-100] ^= 1  # one bit of one weight
        newest.write_bytes(content)
    elif damage == "zeros":
        newest.write_bytes(bytes(len(content)))
    elif damage == "pickle":
        newest.write_bytes(b"\x80\x04N.")
    else:
        newest.unlink()
    steps, warned = continued(directory)
    assert steps == [*range(7, 21)]
    assert len(warned) == 1
    assert "\n" not in warned[0]
    assert warned[0].endswith("; taking the previous checkpoint, of step 6")
    assert contents(directory) == whole


def test_a_whole_newest_checkpoint_is_taken_whatever_the_previous_is(
    half: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(half, tmp_path / "run"))
    (directory / PREVIOUS).write_bytes(b"damaged")
    assert continued(directory) == ([*range(10, 21)], [])
    assert contents(directory) == whole


def test_damage_never_takes_the_place_of_the_good_one(half: Path, tmp_path: Path) -> None:
    """Between going back and the next save there is always a good checkpoint."""
    directory = Path(shutil.copytree(half, tmp_path / "run"))
    (directory / NEWEST).write_bytes(b"damaged")
    with pytest.raises(Stop), pytest.warns(CheckpointWarning):
        run(directory=directory, progress=stop_at(7), **DIGITS)
    assert load_checkpoint(directory / NEWEST)[1]["position"] == 6
    assert not (directory / PREVIOUS).exists()


def test_two_damaged_checkpoints_are_one_line_and_nothing_is_touched(
    half: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(half, tmp_path / "run"))
    for name in (NEWEST, PREVIOUS):
        (directory / name).write_bytes(b"damaged")
    before = contents(directory)
    for attempt in (lambda: run(directory=directory, **DIGITS), lambda: load(directory)):
        with pytest.raises(StateMismatch, match=r"remove both to begin again$") as caught:
            attempt()
        assert "\n" not in str(caught.value)
        assert contents(directory) == before


def test_a_finished_run_with_a_damaged_checkpoint_is_learned_to_its_end_again(
    whole: dict[str, bytes], tmp_path: Path
) -> None:
    run(directory=tmp_path / "run", checkpoint_every=7, **DIGITS)
    (tmp_path / "run" / NEWEST).write_bytes(b"damaged")
    with pytest.warns(CheckpointWarning, match="of step 14"):
        trained = load_run(tmp_path / "run")  # as good as there is
    assert sorted(trained.learner.classes) == [*range(10)]
    steps, warned = continued(tmp_path / "run")
    assert (steps, len(warned)) == ([*range(15, 21)], 1)
    assert contents(tmp_path / "run") == whole


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_no_changed_bit_goes_unnoticed(half: Path, tmp_path: Path, place: float, bit: int) -> None:
    content = bytearray((half / NEWEST).read_bytes())
    content[int(place * len(content))] ^= 1 << bit
    (tmp_path / NEWEST).write_bytes(content)
    with pytest.raises(StateMismatch) as caught:
        load_checkpoint(tmp_path / NEWEST)
    assert "\n" not in str(caught.value)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.integers(0, 2000), bit=st.integers(0, 7))
def test_no_changed_bit_of_the_header_goes_unnoticed(
    half: Path, tmp_path: Path, place: int, bit: int
) -> None:
    content = bytearray((half / NEWEST).read_bytes())
    content[place] ^= 1 << bit
    (tmp_path / NEWEST).write_bytes(content)
    with pytest.raises(StateMismatch):
        load_checkpoint(tmp_path / NEWEST)


def test_any_kind_of_tensor_is_verified_and_comes_back(tmp_path: Path) -> None:
    kinds = (torch.float32, torch.float64, torch.bfloat16, torch.uint8, torch.bool, torch.int64)
    tensors = {str(kind): torch.arange(6).reshape(2, 3).to(kind) for kind in kinds}
    tensors |= {"scalar": torch.tensor(3.5), "none": torch.zeros(0, 4)}
    meta = {"a": [1, 2.5, None], "b": {"é": True}, "c": {1: (2, 3)}}
    save_state(tmp_path / NEWEST, State(tensors, meta), {"position": 3})
    state, about = load_checkpoint(tmp_path / NEWEST)
    assert about == {"position": 3}
    assert state.meta == json.loads(json.dumps(meta))
    assert state.tensors.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert state.tensors[name].dtype == tensor.dtype
        assert torch.equal(state.tensors[name], tensor)


def rewritten(source: Path, target: Path, **changes: Any) -> None:
    """A checkpoint with another header and a checksum that fits."""
    with safetensors.safe_open(source, framework="pt") as file:
        said = json.loads(file.metadata()["deepccg"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    del said["checksum"]
    said |= changes
    header = json.dumps({"checksum": state_file._checksum(said, tensors), **said})
    target.write_bytes(safetensors.torch.save(tensors, {"deepccg": header}))


def test_a_newer_format_is_refused_and_nothing_is_put_in_its_place(
    half: Path, tmp_path: Path
) -> None:
    directory = Path(shutil.copytree(half, tmp_path / "run"))
    rewritten(half / NEWEST, directory / NEWEST, format=2)
    before = contents(directory)
    with pytest.raises(StateMismatch, match=r"has format 2, .* reads up to 1: install a newer one"):
        run(directory=directory, **DIGITS)
    assert contents(directory) == before


def test_an_older_format_goes_through_its_upgrade(
    half: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(half / NEWEST, tmp_path / NEWEST, format=0, about={"step": 9})

    def upgrade(content: state_file.Content) -> state_file.Content:
        said, tensors = content
        return {**said, "about": {"position": said["about"]["step"]}}, tensors

    with pytest.raises(StateMismatch, match="is damaged or not a checkpoint: it has no 0"):
        load_checkpoint(tmp_path / NEWEST)
    monkeypatch.setitem(state_file.UPGRADES, 0, upgrade)
    assert load_checkpoint(tmp_path / NEWEST)[1] == {"position": 9}


def test_changed_records_are_reported(half: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(half, tmp_path / "run"))
    (directory / "records.jsonl").unlink()
    with pytest.raises(RecordError, match="has 0 records up to step 9, and the checkpoint knows"):
        run(directory=directory, **DIGITS)


@pytest.mark.parametrize("every", [1, 4, "0s", "2.5s", "60s", None])
def test_results_do_not_depend_on_when_checkpoints_are_made(
    whole: dict[str, bytes], tmp_path: Path, every: Any
) -> None:
    run(directory=tmp_path / "run", checkpoint_every=every, **DIGITS)
    assert contents(tmp_path / "run") == whole


@pytest.mark.parametrize("every", [0, -1, 2.5, True, "", "s", "-3s", "1m", "nans", "ten", "1e3s"])
def test_a_wrong_schedule_is_one_line(tmp_path: Path, every: Any) -> None:
    with pytest.raises(InputError, match="steps, such as 100, or of seconds, such as 30s; got"):
        run(directory=tmp_path / "run", checkpoint_every=every, **DIGITS)
    assert not (tmp_path / "run").exists()


def test_a_schedule_in_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("deepccg.experiment.writer.time.monotonic", lambda: now)
    schedule = CheckpointSchedule("30s")
    due = []
    for step in range(1, 11):
        now += 12
        if schedule.due(step):
            schedule.saved()
            due.append(step)
    assert due == [3, 6, 9]


def test_a_file_is_durable_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order that survives a power cut: write, fsync, renames, fsync of the directory."""
    order: list[str] = []
    for name in ("write", "fsync", "replace"):
        call = getattr(os, name)

        def watched(*arguments: Any, name: str = name, call: Any = call) -> Any:
            order.append(name)
            return call(*arguments)

        monkeypatch.setattr(os, name, watched)
    path, previous = tmp_path / "file", tmp_path / "previous"
    write_atomically(path, b"old", previous)
    assert order == ["write", "fsync", "replace", "fsync"]
    order.clear()
    write_atomically(path, b"new", previous)
    assert order == ["write", "fsync", "replace", "replace", "fsync"]
    assert (path.read_bytes(), previous.read_bytes()) == (b"new", b"old")
