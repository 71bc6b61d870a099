"""Runs that are there already are found by what was run."""

import shutil
from pathlib import Path

import pytest

from deepccg.experiment import resolve, run
from deepccg.reproduce import Finished

TINY = {"dataset": "digits", "stream.examples_per_class": 10, "method": "sgd"}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with one run, under a name of the user's."""
    place = tmp_path_factory.mktemp("done")
    run(directory=place / "mine" / "first", **TINY)
    return place


def test_a_run_is_found_whatever_it_is_called_and_however_often_it_was_scored(done: Path) -> None:
    finished = Finished(done)
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
def test_another_run_is_not(done: Path, change: dict) -> None:
    assert Finished(done).find(resolve(TINY | change)) is None


def test_records_suffice_and_damage_does_not(tmp_path: Path, done: Path) -> None:
    config = resolve(TINY)
    shutil.copytree(done / "mine", tmp_path / "copy")
    directory = tmp_path / "copy" / "first"
    (directory / "checkpoint.safetensors").unlink()
    assert Finished(tmp_path).find(config) is not None
    records = (directory / "records.jsonl").read_text()
    (directory / "records.jsonl").write_text(records.replace('"final":true', '"final":false'))
    assert Finished(tmp_path).find(config) is None
    (directory / "records.jsonl").write_text("{}\n" + records)
    assert Finished(tmp_path).find(config) is None
    assert Finished(tmp_path / "nowhere").find(config) is None


def test_a_run_that_recorded_shifts_also_serves_where_none_are_wanted(tmp_path: Path) -> None:
    followed = TINY | {"evaluation.shift_images": 10}
    run(directory=tmp_path / "run", **followed)
    finished = Finished(tmp_path)
    assert finished.find(resolve(TINY)) is not None
    assert finished.find(resolve(followed)) is not None
    assert finished.find(resolve(TINY | {"evaluation.shift_images": 11})) is None
