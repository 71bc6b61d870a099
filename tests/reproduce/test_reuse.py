"""Runs that are there already are found by what was run."""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepccg.experiment import resolve, run
from deepccg.records import append_to_archive, find_runs
from deepccg.reproduce import FinishedRuns

TINY = {"dataset": "digits", "stream.examples_per_class": 10, "method": "sgd"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one run, under a name that the user chose."""
    place = tmp_path_factory.mktemp("done")
    run(directory=place / "mine" / "first", **TINY)
    return place


def test_a_run_is_found_whatever_it_is_called_and_however_often_it_was_scored(done: Path) -> None:
    finished = FinishedRuns([done])
    for settings in (
        TINY,
        TINY | {"evaluation.every": "end"},
        TINY | {"threads": 2},
        TINY | {"preset": "paper"},  # the same settings for this method
    ):
        found = finished.find(resolve(settings))
        assert found is not None
        assert found.path == done / "mine" / "first"


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"method": "er"},
        {"method.lr": 0.2},
        {"scenario": "class"},  # another memory
        {"stream": "shifting-window"},
        {"stream.examples_per_class": 11},
        {"evaluation.images": 50},
        {"evaluation.validation": 0.2},
        {"evaluation.shift_images": 10},  # its records are wanted and not there
        {"network.width": 12},
    ],
)
def test_a_run_with_another_setting_is_not_found(done: Path, change: dict) -> None:
    assert FinishedRuns([done]).find(resolve(TINY | change)) is None


def test_records_without_a_checkpoint_suffice_and_damaged_ones_do_not(
    tmp_path: Path, done: Path
) -> None:
    config = resolve(TINY)
    shutil.copytree(done / "mine", tmp_path / "copy")
    directory = tmp_path / "copy" / "first"
    (directory / "checkpoint.safetensors").unlink()
    assert FinishedRuns([tmp_path]).find(config) is not None
    records = (directory / "records.jsonl").read_text()
    (directory / "records.jsonl").write_text(records.replace('"final":true', '"final":false'))
    assert FinishedRuns([tmp_path]).find(config) is None
    (directory / "records.jsonl").write_text("{}\n" + records)
    assert FinishedRuns([tmp_path]).find(config) is None
    assert FinishedRuns([]).find(config) is None


def test_a_run_that_recorded_shifts_also_serves_where_none_are_wanted(tmp_path: Path) -> None:
    followed = TINY | {"evaluation.shift_images": 10}
    run(directory=tmp_path / "run", **followed)
    finished = FinishedRuns([tmp_path])
    assert finished.find(resolve(TINY)) is not None
    assert finished.find(resolve(followed)) is not None
    assert finished.find(resolve(TINY | {"evaluation.shift_images": 11})) is None


def test_of_several_the_one_that_was_asked_for_counts_then_one_without_shift(
    tmp_path: Path, done: Path
) -> None:
    followed = TINY | {"evaluation.shift_images": 10}
    run(directory=tmp_path / "a", **followed)
    shutil.copytree(done / "mine" / "first", tmp_path / "b")  # scored after every task
    run(directory=tmp_path / "c", **TINY, **{"evaluation.every": "end"})
    os.utime(tmp_path / "a" / "records.jsonl")  # the newest

    def found(settings: dict) -> str:
        run = FinishedRuns([tmp_path]).find(resolve(settings))
        assert run is not None
        return run.path.name

    assert found(TINY) == "b"
    assert found(TINY | {"evaluation.every": "end"}) == "c"
    assert found(followed) == "a"
    shutil.rmtree(tmp_path / "b")
    assert found(TINY) == "a"  # the third was scored at its end only
    assert found(TINY | {"evaluation.every": "end"}) == "c"


def test_a_run_is_found_in_an_archive(tmp_path: Path, done: Path) -> None:
    archive = tmp_path / "runs.jsonl"
    append_to_archive(archive, find_runs([done]))
    found = FinishedRuns([archive]).find(resolve(TINY))
    assert found is not None
    assert found.path == archive / "mine" / "first"
    assert found.evaluations() == find_runs([done])[0].evaluations()


def test_of_an_archive_the_last_of_equal_runs_counts(tmp_path: Path, done: Path) -> None:
    for name in ("b", "c", "a"):
        shutil.copytree(done / "mine" / "first", tmp_path / name / "first")
        append_to_archive(tmp_path / "runs.jsonl", find_runs([tmp_path / name]))
    found = FinishedRuns([tmp_path / "runs.jsonl"]).find(resolve(TINY))
    assert found is not None
    assert found.path == tmp_path / "runs.jsonl" / "a" / "first"


def test_of_equal_runs_the_newest_counts(tmp_path: Path, done: Path) -> None:
    for name, seconds in (("a", 100), ("b", 300), ("c", 200)):
        copy = shutil.copytree(done / "mine" / "first", tmp_path / name)
        os.utime(copy / "records.jsonl", (seconds, seconds))
    found = FinishedRuns([tmp_path]).find(resolve(TINY))
    assert found is not None
    assert found.path.name == "b"


@pytest.fixture
def own_method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A user-defined class, in a module that leaves a mark when it is imported."""
    place = tmp_path / "modules"
    place.mkdir()
    (place / "my_method.py").write_text(
        "from deepccg.methods import SGD\n\nclass Mine(SGD):\n    pass\n"
    )
    monkeypatch.syspath_prepend(place)
    yield "my_method:Mine"
    sys.modules.pop("my_method", None)


def test_runs_of_a_class_that_was_asked_for_are_found(tmp_path: Path, own_method: str) -> None:
    settings = TINY | {"method": own_method}
    run(directory=tmp_path / "runs" / "own", **settings)
    found = FinishedRuns([tmp_path / "runs"], {own_method}).find(resolve(settings))
    assert found is not None
    assert found.path.name == "own"


def test_recorded_runs_cannot_import_code(tmp_path: Path, own_method: str) -> None:
    run(directory=tmp_path / "runs" / "own", **TINY | {"method": own_method})
    del sys.modules["my_method"]
    assert FinishedRuns([tmp_path / "runs"], {"er"}).find(resolve(TINY)) is None
    assert "my_method" not in sys.modules
