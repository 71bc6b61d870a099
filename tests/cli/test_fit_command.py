"""``deepccg fit``: one run in parts, which every other command takes as a run."""

import json
from pathlib import Path

import pytest

from deepccg.experiment import load_run, run
from deepccg.records import find_runs
from deepccg.streams import load_dataset

SHORT = ["--set", "stream.examples_per_class=40", "--set", "stream.batch_size=20"]


@pytest.mark.slow  # worker processes that import torch
def test_a_fit_is_a_run_for_every_command(deepccg, place: Path, write_digits) -> None:
    done = deepccg("fit", *SHORT, "--shards", 2)
    assert done.code == 0
    assert "digits, disjoint, task scenario" in done.words
    assert "ccg " in done.words
    assert "single pass, 400 examples read once" in done.words
    assert "2 of 2 shards done" in done.err
    (fitted,) = find_runs([place / "runs"])

    again = deepccg("fit", *SHORT, "--shards", 3, "--json")  # is read back
    assert (again.code, again.err) == (0, "")
    (entry,) = json.loads(again.out)["results"]
    assert (entry["label"], entry["held"]["examples"]) == ("ccg", 0)
    one = run(
        directory=place / "one",
        method="ccg",
        evaluation={"every": "end"},
        stream={"examples_per_class": 40, "batch_size": 20},
    )
    assert load_run(fitted.path).config == one.config
    assert list(fitted.evaluations()) == one.evaluations

    assert deepccg("resume", fitted.path).code == 0
    assert deepccg("report", "runs", "--out", "report.html").code == 0
    assert "ccg" in Path("report.html").read_text()
    images = write_digits(place / "images", classes=2, count=1)
    predicted = deepccg("predict", fitted.path, images, "--json")
    assert predicted.code == 0
    assert len(json.loads(predicted.out)) == 2


@pytest.mark.slow  # a worker process that imports torch
def test_a_folder_is_found_by_the_workers(deepccg, place: Path, write_digits) -> None:
    write_digits(place / "own", classes=4, count=30)
    done = deepccg("fit", "--dataset", "own", "--validation", 0.2, "--method", "ncm", "--shards", 1)
    assert done.code == 0
    assert "1 of 1 shards done" in done.err
    assert "own, disjoint" in done.words
    (fitted,) = find_runs([place / "runs"])
    one = run(load_run(fitted.path).config, place / "one", data=load_dataset("folder:own"))
    assert list(fitted.evaluations()) == one.evaluations


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--method", "er"], "er cannot be fitted in shards, it learns in order: choose one of"),
        (["--set", "method.half_lives=[9]"], "set method.half_lives to []"),
        (["--shards", "0"], "there should be at least 1 shard; got 0"),
        (["--shards", "x"], "Invalid value for '--shards'"),
        (["--retries", "-1"], "retries should be at least 0; got -1"),
        (["--engine", "x"], "engine should be local or ray; got 'x'"),
        (["--address", "x"], "address is for the engine ray"),
        (["--method", "x"], "unknown method 'x'"),
        (["--data-dir", "x"], "--data-dir x is not a directory"),
        (["--dataset", "nope"], "unknown data set 'nope'"),
        (["--set", "evaluation.shift_images=3"], "evaluation.shift_images needs every step"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    deepccg, place: Path, options: list[str], said: str
) -> None:
    done = deepccg("fit", *options)
    assert done.code == 2
    assert done.err.startswith("Error: ")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert list(place.iterdir()) == []
