"""Ctrl-C and SIGTERM: the step is finished, a checkpoint saved, and a line says how to go on."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import QUICK, Forks, Moment, Whole, fingerprint, run_in

from deepccg.experiment import Interrupted, ask_to_stop, request_stop, run, stop_requests
from deepccg.experiment.session import load_checkpoint
from deepccg.records import RunDirectory

DIGITS = {"method": "sgd", "stream.examples_per_class": 20}
RARELY = ("--set", "stream.examples_per_class=20", "--checkpoint-every", "1000", "--out", "out")


@pytest.mark.parametrize(("act", "status"), [("INT", 130), ("TERM", 143)])
def test_a_signal_stops_after_the_step_and_saves(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path, act: str, status: int
) -> None:
    # With few checkpoints the only calls before the end are those of records, at every fourth step.
    moment = Moment(call=11, act=act)
    done = forks(["run", "--method", "er", *RARELY], str(tmp_path), moment)
    assert (done.status, done.out) == (status, "")
    directory = run_in(tmp_path)
    step = load_checkpoint(directory / "checkpoint.safetensors")[1]["position"]
    assert 0 < step < 20
    place = directory.relative_to(tmp_path)
    assert done.err == (
        f"Stopped and saved at step {step} of 20. "
        f"To continue: deepccg resume {place} (or the same command again)\n"
    )
    assert sorted(file.name for file in directory.iterdir()) == [
        "checkpoint.safetensors", "config.toml", "environment.json", "records.jsonl", "timing.json",
    ]  # fmt: skip
    command = re.search(r"deepccg (resume \S+)", done.err)
    assert command is not None
    done = forks(command.group(1).split(), str(tmp_path), None)
    assert (done.status, done.out, done.err) == (0, whole("er").out, "")
    assert fingerprint(directory) == whole("er").files


def test_a_second_ctrl_c_stops_at_once(
    forks: Forks, whole: Callable[[str], Whole], tmp_path: Path
) -> None:
    moment = Moment(call=whole("er").calls.index("c", 50), act="INT twice")
    done = forks(["run", "--method", "er", *QUICK], str(tmp_path), moment)
    place = run_in(tmp_path).relative_to(tmp_path)
    assert (done.status, done.out) == (130, "")
    assert done.err == (
        f"Stopped. To continue: deepccg resume {place} (or the same command again)\n"
    )
    done = forks(["resume", str(place)], str(tmp_path), None)
    assert (done.status, done.out, done.err) == (0, whole("er").out, "")
    assert fingerprint(run_in(tmp_path)) == whole("er").files


def test_several_runs_are_stopped_together(forks: Forks, tmp_path: Path) -> None:
    command = ["run", "--method", "sgd,er", "--seeds", "0-1", *RARELY]
    assert forks(command, str(tmp_path), Moment(call=11, act="INT")).status == 130
    assert len(list(tmp_path.rglob("config.toml"))) == 1


@pytest.mark.slow  # a process that imports torch
def test_the_installed_program_stops_on_ctrl_c(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("deepccg")
    process = subprocess.Popen(
        [str(program), "run", "--method", "sgd", "--checkpoint-every", "1", "--out", "out"],
        cwd=tmp_path,
        env=os.environ | {"DEEPCCG_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # were it ignored here
    )
    while not list(tmp_path.rglob("checkpoint.safetensors")):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert re.fullmatch(r"Stopped and saved at step \d+ of 140\. To continue: .*\n", err)


def signal_at(step: int, number: signal.Signals) -> Callable[..., None]:
    def progress(now: int, _total: int, _info: object) -> None:
        if now == step:
            os.kill(os.getpid(), number)

    return progress


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_library_raises_a_keyboard_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    before = signal.getsignal(number)
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    signal.signal(number, usual)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            run(directory=tmp_path / "run", progress=signal_at(7, number), **DIGITS)
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)
    stop = caught.value
    assert isinstance(stop, Interrupted)
    assert (stop.directory, stop.step, stop.steps) == (tmp_path / "run", 7, 20)
    assert stop.signal == number
    assert load_checkpoint(tmp_path / "run" / "checkpoint.safetensors")[1]["position"] == 7
    assert not (tmp_path / "run" / ".lock").exists()
    steps: list[int] = []
    run(directory=tmp_path / "run", progress=lambda now, *_: steps.append(now), **DIGITS)
    assert steps == [*range(8, 21)]


def test_a_signal_in_the_last_step_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(Interrupted):
            run(directory=tmp_path / "run", progress=signal_at(20, signal.SIGINT), **DIGITS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert RunDirectory(tmp_path / "run").finished


def test_a_users_own_handler_stays_in_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    heard: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: heard.append(number))
    try:
        run(directory=tmp_path / "run", progress=signal_at(7, signal.SIGINT), **DIGITS)
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT]
    assert RunDirectory(tmp_path / "run").finished


def test_a_run_in_another_thread_leaves_signals_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    thread = threading.Thread(target=run, kwargs={"directory": tmp_path / "run", **DIGITS})
    thread.start()
    thread.join()
    assert RunDirectory(tmp_path / "run").finished


def test_a_stop_can_be_requested_where_no_signal_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    stopped: list[Interrupted] = []

    def stop_at_seven(step: int, _total: int, _info: object) -> None:
        if step >= 7:
            request_stop()
            request_stop()  # a second request changes nothing

    def learn() -> None:
        try:
            run(directory=tmp_path / "run", progress=stop_at_seven, **DIGITS)
        except Interrupted as stop:
            stopped.append(stop)

    request_stop()  # before a run learns there is none to stop
    thread = threading.Thread(target=learn)
    thread.start()
    thread.join()
    assert [(stop.step, stop.signal) for stop in stopped] == [(7, signal.SIGINT)]
    assert load_checkpoint(tmp_path / "run" / "checkpoint.safetensors")[1]["position"] == 7
    steps: list[int] = []
    run(directory=tmp_path / "run", progress=lambda now, *_: steps.append(now), **DIGITS)
    assert steps == [*range(8, 21)]


def test_the_old_name_of_a_stop_request_is_deprecated() -> None:
    with stop_requests() as stop:
        with pytest.warns(DeprecationWarning, match="request_stop"):
            ask_to_stop()
        assert stop.signal == signal.SIGINT
