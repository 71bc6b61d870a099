"""A run that was interrupted continues, bit for bit."""

import functools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from deepccg.core import InputError, StepInfo
from deepccg.experiment import RunResult, run
from deepccg.methods import METHODS
from deepccg.records import RunDirectory
from deepccg.streams import Dataset, from_arrays, load_dataset

QUICK = {"dataset": "digits", "stream.examples_per_class": 20}  # 20 batches, scored every 4
STEPS = 20
ONLINE = [name for name in METHODS if name != "multi-task"]  # the others are scored task by task


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but two that depend on time: the checkpoint before the last, and the times."""
    left_out = {"previous.safetensors", "timing.json"}
    files = sorted(directory.iterdir())
    return {file.name: file.read_bytes() for file in files if file.name not in left_out}


def continued(directory: Path, **settings: object) -> tuple[list[int], RunResult]:
    """The steps that were still to be done, and the run."""
    steps: list[int] = []
    result = run(directory=directory, progress=lambda now, *_: steps.append(now), **settings)
    return steps, result


@pytest.fixture(scope="module")
def uninterrupted(
    tmp_path_factory: pytest.TempPathFactory, shorter
) -> Callable[[str], dict[str, bytes]]:
    """What a method writes when nothing happens."""

    @functools.cache
    def written(method: str) -> dict[str, bytes]:
        directory = tmp_path_factory.mktemp("whole") / method
        run(directory=directory, method=method, **QUICK, **shorter(method))
        return contents(directory)

    return written


@pytest.mark.slow_for_most
@pytest.mark.parametrize(
    ("method", "step"),
    [*((method, 13) for method in METHODS), *(("deepccg", step) for step in (1, 2, 5, STEPS))],
)
def test_a_run_continues_from_its_last_checkpoint(
    tmp_path: Path,
    uninterrupted,
    checkpoint_every,
    stop_at,
    interrupted,
    shorter,
    method: str,
    step: int,
) -> None:
    checkpoint_every(0)
    settings = {"method": method, **QUICK, **shorter(method)}
    with pytest.raises(interrupted):
        run(directory=tmp_path / "run", progress=stop_at(step), **settings)
    assert not RunDirectory(tmp_path / "run").finished
    steps, result = continued(tmp_path / "run", **settings)
    total = STEPS * result.config.stream.epochs
    assert steps == list(range(step, total + 1))  # nothing twice, nothing left out
    assert result.examples_read == 10 * total
    assert contents(tmp_path / "run") == uninterrupted(method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["er", "ccg"])
@pytest.mark.parametrize("kind", ["patches", "fourier"])
@pytest.mark.parametrize("step", [1, 13])
def test_a_run_on_fixed_features_continues(
    tmp_path: Path, checkpoint_every, stop_at, interrupted, method: str, kind: str, step: int
) -> None:
    settings = {**QUICK, "method": method, "network.kind": kind, "memory": 30}
    run(directory=tmp_path / "whole", **settings)
    checkpoint_every(0)
    with pytest.raises(interrupted):
        run(directory=tmp_path / "run", progress=stop_at(step), **settings)
    continued(tmp_path / "run", **settings)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "stream"),
    [
        ("er", {"kind": "blurry", "blur": 0.3}),
        ("er", {"kind": "gaussian", "imbalance": 4}),
        ("er", {"kind": "domain"}),
        ("ewc", {"kind": "domain", "appearance": "permutation", "domains": 3}),
        ("multi-task", {"kind": "domain", "domains": 2}),
        ("er", {"kind": "shifting-window", "imbalance": 5}),
    ],
)
def test_a_run_on_any_stream_continues(
    tmp_path: Path, checkpoint_every, stop_at, interrupted, stream: dict, method: str
) -> None:
    settings = {**QUICK, "method": method, **{f"stream.{k}": v for k, v in stream.items()}}
    whole = run(directory=tmp_path / "whole", **settings)
    checkpoint_every(0)
    with pytest.raises(interrupted):
        run(directory=tmp_path / "run", progress=stop_at(7), **settings)
    steps, result = continued(tmp_path / "run", **settings)
    assert steps[0] == 7
    assert result.examples_read == whole.examples_read > 0
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


@pytest.mark.slow_for_most
@pytest.mark.parametrize("method", ONLINE)
def test_records_after_the_last_checkpoint_are_written_again(
    tmp_path: Path, uninterrupted, checkpoint_every, interrupted, shorter, method: str
) -> None:
    checkpoint_every(1e9)
    settings = {"method": method, **QUICK, **shorter(method)}

    def progress(step: int, _total: int, _info: StepInfo) -> None:
        checkpoint_every(0 if step == 6 else 1e9)
        if step == 14:
            raise interrupted

    with pytest.raises(interrupted):
        run(directory=tmp_path / "run", progress=progress, **settings)
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [4, 8, 12]
    steps, _ = continued(tmp_path / "run", **settings)
    assert steps == list(range(7, STEPS + 1))
    assert contents(tmp_path / "run") == uninterrupted(method)


def test_a_run_can_be_interrupted_many_times(
    tmp_path: Path, uninterrupted, checkpoint_every, stop_at, interrupted
) -> None:
    checkpoint_every(0)
    for step in (2, 3, 9, 17):
        with pytest.raises(interrupted):
            run(directory=tmp_path / "run", progress=stop_at(step), **QUICK)
    run(directory=tmp_path / "run", **QUICK)
    assert contents(tmp_path / "run") == uninterrupted("deepccg")


def test_a_torn_record_does_not_stop_a_run(
    tmp_path: Path, uninterrupted, checkpoint_every, stop_at, interrupted
) -> None:
    checkpoint_every(0)
    with pytest.raises(interrupted):
        run(directory=tmp_path / "run", progress=stop_at(10), **QUICK)
    with (tmp_path / "run" / "records.jsonl").open("ab") as file:
        file.write(b'{"type":"evaluation","step":12,"exam')
    run(directory=tmp_path / "run", **QUICK)
    assert contents(tmp_path / "run") == uninterrupted("deepccg")


def test_a_run_that_was_killed_while_it_began_can_begin_again(
    tmp_path: Path, uninterrupted
) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    (directory / "environment.json").write_text("{}")
    (directory / ".config.toml.4711.tmp").write_text("datas")
    (directory / ".lock").touch()
    run(directory=directory, **QUICK)
    assert contents(directory) == uninterrupted("deepccg")


DRIVER = """
import sys, time
from deepccg.experiment import run

def progress(step, total, info):
    print(step, flush=True)
    time.sleep(0.05)

settings = {"dataset": "digits", "stream.examples_per_class": 20, "method": sys.argv[2]}
run(directory=sys.argv[1], progress=progress, checkpoint_every=1, **settings)
"""


@pytest.mark.slow  # a process that imports torch
def test_a_killed_process_continues_bit_for_bit(tmp_path: Path, uninterrupted) -> None:
    directory = tmp_path / "run"
    script = tmp_path / "driver.py"
    script.write_text(DRIVER)
    process = subprocess.Popen(
        [sys.executable, str(script), str(directory), "deepccg"],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert process.stdout is not None
    with process.stdout:
        printed = [process.stdout.readline().strip() for _ in range(9)]
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert printed == [str(step) for step in range(1, 10)]
    assert not RunDirectory(directory).finished
    steps, _ = continued(directory, **QUICK)
    assert steps[0] >= 9  # step 8 was over, hence saved, when step 9 was printed
    assert contents(directory) == uninterrupted("deepccg")


def altered_digits(x_shift: int = 0, relabel: bool = False) -> Dataset:
    train, test = load_dataset("digits").train, load_dataset("digits").test
    x, y = train.x[:, 0] + np.uint8(x_shift), train.y
    names = [str(digit) for digit in range(10)]
    y = (y + 1) % 10 if relabel else y
    return from_arrays(x, y, test.x[:, 0], test.y, class_names=names, name="mine")


@pytest.mark.parametrize("change", [{"x_shift": 1}, {"relabel": True}], ids=["pixels", "labels"])
@pytest.mark.parametrize("finish", [False, True], ids=["partial", "finished"])
def test_data_that_changed_are_refused(
    tmp_path: Path, checkpoint_every, stop_at, interrupted, change: dict, finish: bool
) -> None:
    checkpoint_every(0)
    settings = {"directory": tmp_path / "run", "stream.examples_per_class": 20, "method": "sgd"}
    if finish:
        run(data=altered_digits(), **settings)
    else:
        with pytest.raises(interrupted):
            run(data=altered_digits(), progress=stop_at(9), **settings)
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match=r"the data changed since .* was begun"):
        run(data=altered_digits(**change), **settings)
    assert contents(tmp_path / "run") == before
    run(data=altered_digits(), **settings)  # the right data are still welcome
