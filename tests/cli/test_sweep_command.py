"""``deepccg sweep``: listing, doing, failing, refusing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deepccg.records import find_runs

GRID = """
methods = ["er", "sgd"]
seeds = "0-1"
settings.stream.examples_per_class = 20
"""


@pytest.fixture
def grid(place: Path) -> Path:
    path = place / "grid.toml"
    path.write_text(GRID)
    return path


def test_a_dry_run_lists_the_names_that_run_gives(
    deepccg: Callable[..., object], grid: Path, place: Path
) -> None:
    done = deepccg("run", "--method", "sgd", "--set", "stream.examples_per_class=20")
    assert done.code == 0
    (finished,) = find_runs([place / "runs"])
    (finished.path.with_name("seed-1")).mkdir()
    (finished.path.with_name("seed-1") / "config.toml").write_bytes(
        finished.config_path.read_bytes()
    )
    done = deepccg("sweep", grid, "--dry-run")
    assert done.code == 0
    lines = sorted(line.split() for line in done.out.splitlines())
    name = str(finished.path.relative_to(place / "runs"))
    assert [state for state, _ in lines] == ["begun", "finished", "new", "new"]
    assert lines[1] == ["finished", name]
    assert done.err == "runs: 4, of which 2 new, 1 begun, 1 finished\n"
    parts = [
        deepccg("sweep", grid, "--dry-run", "--shard", f"{part}/3").out.splitlines()
        for part in (1, 2, 3)
    ]
    assert sorted(line for part in parts for line in part) == sorted(done.out.splitlines())
    listed = deepccg("sweep", grid, "--dry-run", "--json", "--method", "er", "--seeds", "7").out
    (only,) = json.loads(listed)
    assert only.startswith("digits-disjoint-task-er-default-")
    assert only.endswith("/seed-7")


@pytest.mark.slow  # worker processes that import torch
def test_a_sweep_prints_results_and_fails_with_status_1(
    deepccg: Callable[..., object], place: Path
) -> None:
    (place / "grid.toml").write_text(
        """
        methods = "sgd"
        fields.method.lr = [0.1, 1e30]
        settings.stream.examples_per_class = 20
        """
    )
    pytest.importorskip("tensorboard", reason="the extra deepccg[tracking] is not installed")
    done = deepccg("sweep", "grid.toml", "--jobs", 1, "--track", "tensorboard")
    assert done.code == 1
    (finished,) = (run for run in find_runs([place / "runs"]) if run.finished)
    assert len(list(finished.path.glob("events.out.tfevents.*"))) == 1
    assert "digits, disjoint, task scenario" in done.words
    assert "sgd " in done.words
    *_, counted, failed = done.err.splitlines()
    assert counted == "runs: 2, of which 1 finished, 0 had finished before, 1 failed"
    assert "/seed-0: " in failed
    (place / "grid.toml").write_text("methods = 'sgd'\nsettings.stream.examples_per_class = 20")
    done = deepccg("sweep", "grid.toml", "--json")
    assert done.code == 0
    (entry,) = json.loads(done.out)
    assert (entry["status"], entry["error"], entry["attempts"]) == ("already", None, 0)
    assert done.err == "runs: 1, of which 0 finished, 1 had finished before, 0 failed\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["nothing.toml"], "cannot read nothing.toml: No such file or directory"),
        (["grid.toml", "--jobs", "0"], "there should be at least 1 worker; got 0"),
        (["grid.toml", "--retries", "-1"], "retries should be at least 0; got -1"),
        (["grid.toml", "--engine", "x"], "engine should be local or ray; got 'x'"),
        (["grid.toml", "--address", "x"], "address is for the engine ray"),
        (["grid.toml", "--shard", "3/2"], "--shard 3/2: write for example 2/10"),
        (["grid.toml", "--seeds", "x"], "--seeds x: write for example"),
        (["grid.toml", "--data-dir", "x"], "--data-dir x is not a directory"),
        (["grid.toml", "--upload", "no://x"], "cannot upload to 'no://x'"),
        (["grid.toml", "--track", "x"], "track should be mlflow or tensorboard or wandb; got 'x'"),
        (["grid.toml", "--checkpoint-every", "x"], "checkpoint_every takes a number of steps"),
        (["grid.toml", "--method", "x"], "unknown method 'x'"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(
    deepccg: Callable[..., object], grid: Path, place: Path, options: list[str], said: str
) -> None:
    done = deepccg("sweep", *options)
    assert done.code == 2
    assert done.err.startswith("Error: ")
    assert said in done.err
    assert done.err.count("\n") == 1
    assert [path.name for path in place.iterdir()] == [grid.name]
