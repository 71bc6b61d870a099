"""``deepccg run``: the same numbers as the library's, by flags."""

import json
import os
import pty
import statistics
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deepccg.experiment import run
from deepccg.records import find_runs, summary

QUICK = ("--set", "stream.examples_per_class=20")
METRICS = {
    f"{mode}_{metric}"
    for mode in ("task", "class")
    for metric in (
        "accuracy", "forgetting", "backward_transfer", "anytime_accuracy", "balanced_accuracy",
    )
} | {"class_accuracy_by_task"}  # fmt: skip


def only_run(out: Path) -> Path:
    (found,) = find_runs([out])
    return found.path


def config_of(out: Path) -> dict:
    return tomllib.loads((only_run(out) / "config.toml").read_text())


def test_json_is_one_object_with_every_number(deepccg, tmp_path: Path) -> None:
    done = deepccg(
        "run", *QUICK, "--method", "deepccg,er", "--seeds", "0-1", "--json", "--out", "out"
    )
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)  # nothing before it, nothing behind it
    assert (shown["images"], shown["of_images"], shown["source"]) == (397, 397, "test images")
    assert [result["label"] for result in shown["results"]] == ["deepccg", "er"]
    for result in shown["results"]:
        assert set(result["metrics"]) == METRICS
        assert set(result["seeds"]) == set(result["directories"]) == {"0", "1"}
        assert result["config"]["method"]["name"] == result["label"]
        for name, value in result["metrics"].items():
            own = [result["seeds"][seed][name] for seed in ("0", "1")]
            assert value["n"] == 2
            assert value["mean"] == pytest.approx(sum(own) / 2, abs=1e-15)
            assert value["standard_error"] == pytest.approx(statistics.stdev(own) / 2**0.5)
    by_hand = run(directory=tmp_path / "run", method="er", seed=1, **{QUICK[1].split("=")[0]: 20})
    er = shown["results"][1]
    assert er["seeds"]["1"] == by_hand.summary
    records = Path(er["directories"]["1"]) / "records.jsonl"
    assert records.read_bytes() == (tmp_path / "run" / "records.jsonl").read_bytes()


def test_the_table_shows_both_scenarios_of_every_method(deepccg) -> None:
    done = deepccg("run", *QUICK, "--method", "er,sgd", "--seeds", "0,2", "--out", "out")
    assert (done.code, done.err) == (0, "")
    for text in ("Task-", "Class-", "incremental", "forgetting", "digits, disjoint, task scenario"):
        assert text in done.words
    assert "mean ± standard error over 2 seeds; scored on all 397 test images" in done.words
    assert done.out.count("single pass, 200 examples read once") == 2
    for method in ("er", "sgd"):
        runs = [r for r in find_runs(["out"]) if r.config()["method"]["name"] == method]
        assert [r.path.name for r in runs] == ["seed-0", "seed-2"]
        (line,) = [line for line in done.out.splitlines() if line.strip().startswith(f"{method} ")]
        for metric in ("task_accuracy", "task_forgetting", "class_accuracy", "class_forgetting"):
            mean = statistics.fmean(summary(each.evaluations())[metric] for each in runs)
            assert f" {100 * mean:z.1f} ± " in line


def test_the_same_command_again_reads_the_runs_back(deepccg) -> None:
    command = ("run", *QUICK, "--method", "sgd", "--json", "--out", "out")
    first = deepccg(*command)
    checkpoint = only_run(Path("out")) / "checkpoint.safetensors"
    written_at = checkpoint.stat().st_mtime_ns
    assert deepccg(*command) == first
    assert checkpoint.stat().st_mtime_ns == written_at


def test_a_runs_configuration_repeats_the_run_bit_for_bit(deepccg) -> None:
    settings = (
        "--method", "deepccg", "--preset", "paper", "--seeds", "3", "--memory", "23",
        "--stream", "shifting-window", "--set", "method.lr=0.05", "--eval-every", "7",
    )  # fmt: skip
    deepccg("run", *QUICK, *settings, "--out", "first")
    first = only_run(Path("first"))
    done = deepccg("run", "--config", first / "config.toml", "--out", "second")
    assert done.code == 0
    second = only_run(Path("second"))
    assert second.relative_to("second") == first.relative_to("first")
    files = {file for file in first.iterdir() if file.name != "timing.json"}
    assert len(files) == 5
    for file in files:
        assert file.read_bytes() == (second / file.name).read_bytes(), file.name


def test_flags_win_over_a_configuration_file(deepccg) -> None:
    Path("my.toml").write_text(
        'method = "er"\nmemory = 40\nseed = 5\n[stream]\nexamples_per_class = 20\nbatch_size = 4\n'
    )
    done = deepccg(
        "run", "--config", "my.toml", "--memory-per-class", "2", "--set", "stream.batch_size=5",
        "--out", "out",
    )  # fmt: skip
    assert done.code == 0
    config = config_of(Path("out"))
    assert config["memory_per_class"] == 2
    assert "memory" not in config
    assert config["seed"] == 5
    assert config["method"]["name"] == "er"
    assert config["stream"] == {
        "kind": "disjoint", "examples_per_class": 20, "batch_size": 5, "epochs": 1
    }  # fmt: skip


def test_every_flag_reaches_the_configuration(deepccg) -> None:
    done = deepccg(
        "run", *QUICK, "--method", "er", "--scenario", "class", "--memory", "33",
        "--stream", "shifting-window", "--validation", "0.1", "--eval-every", "20",
        "--eval-images", "10", "--device", "cpu", "--threads", "1", "--dataset", "digits",
        "--set", "method.lr=0.2", "--set", "network.layers=[30, 20]", "--out", "out",
    )  # fmt: skip
    assert done.code == 0
    config = config_of(Path("out"))
    assert (config["scenario"], config["memory"]) == ("class", 33)
    assert config["stream"]["kind"] == "shifting-window"
    assert config["evaluation"] == {"validation": 0.1, "every": 20, "images": 10}
    assert (config["method"]["lr"], config["network"]["layers"]) == (0.2, [30, 20])
    assert "memory 33" in done.out
    assert "scored on 10 of 20 held-out training images" in done.words


def test_evaluation_flags_decide_when_and_on_what(deepccg) -> None:
    done = deepccg(
        "run", "--method", "sgd", "--eval-every", "60", "--eval-images", "100", "--out", "out"
    )
    assert "scored on 100 of 397 test images" in done.words
    (found,) = find_runs(["out"])
    assert [(e.step, e.images, e.of_images) for e in found.evaluations()][1:] == [
        (120, 100, 397),
        (140, 100, 397),
    ]


def test_a_preset_is_named_in_the_table(deepccg) -> None:
    done = deepccg("run", *QUICK, "--preset", "paper", "--out", "out")
    assert "deepccg (paper)" in done.out
    assert config_of(Path("out"))["method"]["reduction"] == "sum"


def test_a_folder_of_class_folders(deepccg, write_digits) -> None:
    write_digits(Path("pictures"), classes=4, count=6)
    done = deepccg("run", "--dataset", "pictures/", "--method", "sgd", "--out", "out")
    assert done.code == 0
    found = only_run(Path("out"))
    assert found.parent.name.startswith("pictures-disjoint-task-sgd-default-")
    assert config_of(Path("out"))["dataset"] == "pictures"
    Path("elsewhere").mkdir()
    moved = Path("pictures").rename("elsewhere/pictures")
    again = deepccg("run", "--config", found / "config.toml", "--dataset", moved, "--out", "again")
    assert again.code == 0
    records = (found / "records.jsonl").read_bytes()
    assert (only_run(Path("again")) / "records.jsonl").read_bytes() == records


@pytest.mark.slow  # two processes that import torch
def test_the_installed_program_runs_from_end_to_end(place: Path) -> None:
    """JSON on a pipe, the bar on a terminal."""
    terminal, stderr = pty.openpty()
    program = Path(sys.executable).with_name("deepccg")
    process = subprocess.Popen(
        [str(program), "run", *QUICK, "--method", "deepccg", "--json"],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=os.environ | {"TERM": "xterm"},
    )
    os.close(stderr)
    bar = b""
    while True:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other side closed it
            break
        if not part:
            break
        bar += part
    out, _ = process.communicate()
    os.close(terminal)
    assert process.returncode == 0
    assert set(json.loads(out)["results"][0]["metrics"]) == METRICS
    assert b"deepccg, seed 0" in bar
    assert b"batches, loss" in bar
    assert only_run(place / "runs").name == "seed-0"  # the place that the help names


def test_a_user_defined_learner_by_name(
    deepccg, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "lazy.py").write_text(
        "from deepccg import SGD, StepInfo\n\n\n"
        "class Lazy(SGD):\n"
        "    def learn(self, batch):\n"
        "        self.begin_step(batch)\n"
        "        return StepInfo(loss=0.5)\n"
    )
    monkeypatch.syspath_prepend(tmp_path / "mine")
    done = deepccg("run", *QUICK, "--method", "lazy:Lazy", "--json")
    assert (done.code, done.err) == (0, "")
    shown = json.loads(done.out)
    assert shown["results"][0]["label"] == "lazy:Lazy"
    assert shown["results"][0]["metrics"]["class_accuracy"]["mean"] < 0.4  # it does not learn


def test_multi_task_is_shown_as_offline_and_with_its_memory_usage(deepccg) -> None:
    quick = ("--set", "stream.examples_per_class=20", "--out", "out")
    done = deepccg("run", "--method", "multi-task,er", "--memory", "30", *quick)
    assert done.code == 0
    assert "offline" in done.out
    assert "protocol (multi-task): offline, 200 examples read 2 times each;" in done.out
    assert "protocol (er): single pass, 200 examples read once;" in done.out
    # 30 images of 8 x 8 bytes, each with a class and a task of 8 bytes.
    assert "er 30 examples (2,400 bytes)" in done.out
    unmasked = deepccg("run", "--method", "multi-task", "--scenario", "class", *quick, "--json")
    (entry,) = json.loads(unmasked.out)["results"]
    assert entry["note"] == "offline"
    assert entry["held"] == {"examples": 0, "bytes": {"examples": 0}}
    assert entry["config"]["method"]["train_mask"] == "all"
    assert entry["config"]["stream"]["joint"] == "classes"
    assert entry["config"]["stream"]["epochs"] == 3


def test_an_online_stream_is_read_once(deepccg) -> None:
    done = deepccg("run", "--method", "sgd", "--set", "stream.epochs=2")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "epochs" in done.err
    assert "joint" in done.err
    assert deepccg("run", "--stream", "joint", "--method", "sgd", "--out", "out").code == 0
