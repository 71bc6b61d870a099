"""Getting a trained learner back, and nothing else with it."""

import json
import shutil
from pathlib import Path

import pytest
import safetensors.torch
import torch

from deepccg.core import InputError, StateMismatch, Task
from deepccg.experiment import RunResult, load, load_run, run
from deepccg.experiment.session import load_checkpoint
from deepccg.methods import METHODS
from deepccg.records import RecordError
from deepccg.streams import load_dataset

QUICK = {"dataset": "digits", "stream.examples_per_class": 20}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(directory=tmp_path_factory.mktemp("runs") / "er", method="er", **QUICK)


@pytest.fixture
def copy(finished: RunResult, tmp_path: Path) -> Path:
    """A run directory to be damaged."""
    return Path(shutil.copytree(finished.directory, tmp_path / "run"))


@pytest.mark.slow_for_most
@pytest.mark.parametrize("method", METHODS)
def test_a_loaded_learner_predicts_as_the_runs_did(tmp_path: Path, shorter, method: str) -> None:
    result = run(directory=tmp_path / "run", method=method, **QUICK, **shorter(method))
    loaded = load(tmp_path / "run")
    assert type(loaded) is METHODS[method]
    x = torch.from_numpy(load_dataset("digits").test.x)
    first = Task(0, result.evaluations[-1].tasks[0].classes)
    without = () if method == "packnet" else (None,)  # which asks for a task
    for task in (first, Task(7, (3, 8)), *without):
        assert torch.equal(loaded.predict_logits(x, task), result.learner.predict_logits(x, task))
        assert torch.equal(loaded.predict(x, task), result.learner.predict(x, task))


def test_a_loaded_run_knows_its_classes_and_shape(finished: RunResult) -> None:
    trained = load_run(finished.directory)
    assert trained.class_names == tuple("0123456789")
    assert trained.shape == (1, 8, 8)
    assert trained.config == finished.config
    assert sorted(trained.learner.classes) == list(range(10))


def test_a_path_may_be_text(finished: RunResult) -> None:
    assert load(str(finished.directory)).classes == finished.learner.classes


TRUNCATED = [0, 1, 7, 8, 100, 3000, -1]
GARBAGE = [b"\0" * 4096, b"garbage" * 999, b"\xff" * 64, b"{}"]


@pytest.mark.parametrize("damage", [*TRUNCATED, *GARBAGE])
def test_a_damaged_checkpoint_is_one_line(copy: Path, damage: int | bytes) -> None:
    file = copy / "checkpoint.safetensors"
    file.write_bytes(damage if isinstance(damage, bytes) else file.read_bytes()[:damage])
    with pytest.raises(StateMismatch, match="is damaged or not a checkpoint") as caught:
        load(copy)
    assert "\n" not in str(caught.value)


def header(**parts: object) -> dict[str, str]:
    return {"deepccg": json.dumps(parts)}


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"format": "pt"},
        {"deepccg": "not JSON"},
        {"deepccg": "[1, 2]"},
        {"deepccg": "{}"},
        header(state={}),
        header(state={}, about={}),
        header(state={}, about=3),
        header(state={}, about={"shape": [1, "x", 8], "classes": [], "class_names": []}),
        header(state={}, about={"shape": [1, 8, 8], "classes": [0], "class_names": ["0"]}),
    ],
)
def test_a_foreign_safetensors_file_is_one_line(copy: Path, metadata: dict | None) -> None:
    content = safetensors.torch.save({"x": torch.zeros(3)}, metadata)
    (copy / "checkpoint.safetensors").write_bytes(content)
    with pytest.raises(StateMismatch) as caught:
        load(copy)
    assert "\n" not in str(caught.value)


def test_a_checkpoint_of_another_method_is_refused(copy: Path, tmp_path: Path) -> None:
    run(directory=tmp_path / "sgd", method="sgd", **QUICK)
    shutil.copy(tmp_path / "sgd" / "checkpoint.safetensors", copy / "checkpoint.safetensors")
    with pytest.raises(StateMismatch, match="the state belongs to 'SGD', not to ER"):
        load(copy)


def test_a_directory_without_a_run_is_one_line(copy: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a run directory: it has no config"):
        load(tmp_path / "nowhere")
    (copy / "checkpoint.safetensors").unlink()
    with pytest.raises(StateMismatch, match="has no checkpoint"):
        load(copy)
    (copy / "config.toml").write_text("memory = -3\n")
    with pytest.raises(InputError, match="memory should be greater than or equal to 0"):
        load(copy)
    (copy / "config.toml").write_text("memory = ")
    with pytest.raises(RecordError, match="is not valid TOML"):
        load(copy)


def test_a_checkpoint_is_plain_tensors_and_json(finished: RunResult) -> None:
    file = finished.directory / "checkpoint.safetensors"
    state, about = load_checkpoint(file)
    tensors = safetensors.torch.load(file.read_bytes())
    assert tensors.keys() == state.tensors.keys()
    assert all(torch.equal(tensors[name], state.tensors[name]) for name in tensors)
    assert about["position"] == 20
    assert about["class_names"] == list("0123456789")
