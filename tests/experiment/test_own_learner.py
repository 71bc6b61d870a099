"""A learner of the user's own runs without editing the package."""

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from deepccg.core import InputError, Learner
from deepccg.experiment import learner_class, load, resolve, run, run_command
from deepccg.methods import METHODS, SGD
from deepccg.streams import build_stream, load_dataset

SOURCE = Path(__file__).with_name("nearest_mean.py")
QUICK = {"dataset": "digits", "stream.examples_per_class": 20}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a module on the path that holds a learner."""
    folder = tmp_path / "package"
    folder.mkdir()
    shutil.copy(SOURCE, folder / "my_learner.py")
    monkeypatch.syspath_prepend(folder)
    yield "my_learner"
    sys.modules.pop("my_learner", None)


@pytest.fixture
def nearest_mean() -> type[Learner]:
    spec = importlib.util.spec_from_file_location("nearest_mean_by_hand", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded.NearestMean


def nearest_mean_accuracy() -> float:
    """What the learner must reach: it sees every example of its stream once, in any order."""
    data = load_dataset("digits")
    stream = build_stream("disjoint", data.train, classes_per_task=2, examples_per_class=20)
    rows = [int(row) for step in range(len(stream)) for row in stream.indices(step)]
    x = torch.from_numpy(data.train.x[rows]).double().flatten(1)
    y = torch.from_numpy(data.train.y[rows])
    means = torch.stack([x[y == label].mean(0) for label in range(10)])
    test = torch.from_numpy(data.test.x).double().flatten(1)
    nearest = torch.cdist(test, means).argmin(1)
    return float((nearest == torch.from_numpy(data.test.y)).double().mean())


def test_a_class_is_run(tmp_path: Path, nearest_mean: type[Learner]) -> None:
    result = run(directory=tmp_path / "run", learner=nearest_mean, memory=7, **QUICK)
    assert isinstance(result.learner, nearest_mean)
    assert result.learner.memory == 7
    assert result.config.method.name == "nearest_mean_by_hand:NearestMean"
    assert result.config.method.fields == {"scale": 1.0, "shrink": None, "weights": [1.0, 1.0]}
    assert result.summary["class_accuracy"] == pytest.approx(nearest_mean_accuracy(), abs=1e-12)


def test_a_class_is_found_by_its_name(tmp_path: Path, module: str) -> None:
    settings = {"method": f"{module}:NearestMean", "method.scale": 0.5}
    result = run(directory=tmp_path / "run", **QUICK, **settings)
    assert type(result.learner).__name__ == "NearestMean"
    assert result.learner.config.scale == 0.5
    assert result.summary["class_accuracy"] == pytest.approx(nearest_mean_accuracy(), abs=1e-12)


def test_a_class_is_found_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "my_learner_here.py").write_text(SOURCE.read_text())
    monkeypatch.chdir(tmp_path)
    elsewhere = [entry for entry in sys.path if entry not in ("", str(tmp_path))]
    monkeypatch.setattr(sys, "path", list(elsewhere))
    assert learner_class("er") is METHODS["er"]
    assert sys.path == elsewhere  # it is looked into only if a class is named
    assert learner_class("my_learner_here:NearestMean").__module__ == "my_learner_here"
    learner_class("my_learner_here:NearestMean")
    assert sys.path == [str(tmp_path), *elsewhere]
    del sys.modules["my_learner_here"]


def test_a_record_cannot_have_a_class_imported_for_its_command(module: str) -> None:
    config = resolve({"method": f"{module}:NearestMean"})
    del sys.modules[module]
    assert run_command(config, "0") is None
    assert module not in sys.modules


def test_a_field_left_open_does_not_stop_a_run_from_continuing(
    tmp_path: Path, nearest_mean: type[Learner], checkpoint_every, stop_at, interrupted
) -> None:
    # TOML has no null: the written configuration lacks the field.
    checkpoint_every(0)
    with pytest.raises(interrupted):
        run(directory=tmp_path / "run", learner=nearest_mean, progress=stop_at(9), **QUICK)
    result = run(directory=tmp_path / "run", learner=nearest_mean, **QUICK)
    assert result.summary["class_accuracy"] == pytest.approx(nearest_mean_accuracy(), abs=1e-12)


def test_wrong_fields_and_other_classes_are_refused(tmp_path: Path, module: str) -> None:
    with pytest.raises(InputError, match=r"method\.scal is not a field; did you mean scale\?"):
        run(directory=tmp_path / "run", method=f"{module}:NearestMean", **{"method.scal": 1})
    with pytest.raises(InputError, match="is not a subclass of"):
        run(directory=tmp_path / "run", method=f"{module}:NotALearner")
    with pytest.raises(InputError, match=f"cannot import method {module}:Missing"):
        run(directory=tmp_path / "run", method=f"{module}:Missing")
    assert not (tmp_path / "run").exists()


def test_a_configuration_of_another_method_is_not_recorded_for_the_class(
    tmp_path: Path, nearest_mean: type[Learner]
) -> None:
    with pytest.raises(InputError, match="is not a field"):
        run(resolve(QUICK | {"method": "er"}), tmp_path / "run", learner=nearest_mean)


def test_a_run_of_the_class_loads_with_the_class(
    tmp_path: Path, nearest_mean: type[Learner]
) -> None:
    result = run(directory=tmp_path / "run", learner=nearest_mean, **QUICK)
    x = torch.from_numpy(load_dataset("digits").test.x)
    loaded = load(tmp_path / "run", learner=nearest_mean)
    assert torch.equal(loaded.predict_logits(x), result.learner.predict_logits(x))
    with pytest.raises(InputError, match="was run with nearest_mean_by_hand:NearestMean: pass"):
        load(tmp_path / "run")
    with pytest.raises(InputError, match="method"):  # its fields are not SGD's
        load(tmp_path / "run", learner=SGD)
