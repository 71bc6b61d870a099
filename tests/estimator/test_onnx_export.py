"""Exported files, run by onnxruntime, against ``predict_proba``."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.exceptions import NotFittedError
from torch import nn

from deepccg import DeepCCGClassifier, InputError
from deepccg.estimator.onnx_export import OPSET
from deepccg.networks import Fourier, Patches

ROOT = Path(__file__).parents[2]


def opened(path: Path) -> Any:
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def vectors(dtype: type = np.float64) -> tuple[Any, Any]:
    y = np.repeat(["ant", "bee", "cow"], 20)
    x = np.random.default_rng(0).normal(size=(60, 5)) + 3 * np.eye(3, 5).repeat(20, axis=0)
    return x.astype(dtype), y


def images(channels: int = 3, side: int = 16) -> tuple[Any, Any]:
    y = np.repeat([7, -2], 15)
    x = np.random.default_rng(0).integers(0, 100, (30, side, side, channels), dtype=np.uint8)
    x[y == 7, ::2] += np.uint8(120)
    return x, y


def conv() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(2)
    )


def mixed() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 6), nn.Tanh())


def patches(x: Any) -> nn.Module:
    network = Patches((x.shape[3], *x.shape[1:3]), filters=10, mirror=True)
    network.fit(torch.from_numpy(x).permute(0, 3, 1, 2), torch.Generator().manual_seed(0))
    return network


def fourier(x: Any) -> nn.Module:
    torch.manual_seed(0)
    network = Fourier(x.shape[1], 30).double()
    network.fit(torch.from_numpy(x), torch.Generator())
    return network


CASES: dict[str, tuple[dict[str, Any], Any, str]] = {
    "mlp": ({}, vectors(), "tensor(double)"),
    "a rare class": (
        {"encoder": "identity", "class_prior": "observed"},
        (vectors()[0][:45], vectors()[1][:45]),
        "tensor(double)",
    ),
    "er-ace, single precision": ({"method": "er-ace"}, vectors(np.float32), "tensor(float)"),
    "pcr": ({"method": "pcr", "epochs": 1}, images(), "tensor(uint8)"),
    "scr": ({"method": "scr"}, vectors(), "tensor(double)"),
    "float32 module on float64 vectors": ({"encoder": mixed()}, vectors(), "tensor(double)"),
    "slim resnet on bytes": ({"epochs": 1}, images(), "tensor(uint8)"),
    "slim resnet, averaged over views": (
        {"epochs": 1, "method_params": {"views": 2}},
        images(),
        "tensor(uint8)",
    ),
    "mlp on small grey bytes": ({}, images(1, 8), "tensor(uint8)"),
    "patches": ({"encoder": patches(images()[0])}, images(), "tensor(uint8)"),
    "patches of shrunk images": (
        {"encoder": patches(images(1, 61)[0])},
        images(1, 61),
        "tensor(uint8)",
    ),
    "fourier": ({"encoder": fourier(vectors()[0])}, vectors(), "tensor(double)"),
    "own convolutions on floats": (
        {"encoder": conv(), "epochs": 2},
        (images(1)[0] / np.float32(255), images(1)[1]),
        "tensor(float)",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_the_file_predicts_what_the_classifier_predicts(case: str, tmp_path: Path) -> None:
    params, (x, y), kind = CASES[case]
    model = DeepCCGClassifier(**{"memory": 20, "random_state": 0, **params}).fit(x, y)
    model.export(tmp_path / "model.onnx")
    session = opened(tmp_path / "model.onnx")
    (given_x,) = session.get_inputs()
    assert (given_x.name, given_x.type, given_x.shape) == ("x", kind, ["N", *x.shape[1:]])
    for rows in (slice(0, 1), slice(3, 10), slice(None)):
        probability, label = session.run(["probabilities", "label"], {"x": x[rows]})
        assert np.abs(probability - model.predict_proba(x[rows])).max() < 1e-4
        np.testing.assert_array_equal(model.classes_[label], model.predict(x[rows]))
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    assert classes == model.classes_.tolist()
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]  # no data beside it


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[DeepCCGClassifier, Any, Path]:
    """Four classes and one that was declared only, exported; three of them were tasks."""
    x, y = vectors()
    model = DeepCCGClassifier(memory=16, random_state=0, method_params={"variance": "per-class"})
    model.partial_fit(x[:40], y[:40], classes=["eel"]).partial_fit(x[40:43], y[40:43])
    path = tmp_path_factory.mktemp("export") / "model.onnx"
    model.export(path)
    return model, opened(path), path


@given(st.integers(1, 80), st.integers(0, 2**32 - 1))
def test_any_number_of_rows(
    exported: tuple[DeepCCGClassifier, Any, Path], rows: int, seed: int
) -> None:
    model, session, _ = exported
    x = np.random.default_rng(seed).normal(size=(rows, 5)) * 3
    probability, label = session.run(None, {"x": x})
    assert probability.shape == (rows, 4)
    assert np.abs(probability - model.predict_proba(x)).max() < 1e-4
    np.testing.assert_array_equal(model.classes_[label], model.predict(x))
    assert (probability[:, model.classes_ == "eel"] == 0).all()


def test_the_file_is_standard_onnx_without_local_paths(
    exported: tuple[DeepCCGClassifier, Any, Path],
) -> None:
    model, _, path = exported
    content = path.read_bytes()
    for private in (str(ROOT), str(Path.home()), str(path.parent), "site-packages", ".py", "File "):
        assert private.encode() not in content
    graph = onnx.load(path)
    onnx.checker.check_model(graph, full_check=True)
    assert [(entry.domain, entry.version) for entry in graph.opset_import] == [("", OPSET)]
    assert graph.producer_name == "deepccg"
    assert {entry.key for entry in graph.metadata_props} == {"classes", "method"}
    stored = model.memory_["x"]
    assert not any(row.tobytes() in content for row in stored)  # means of many, no example


def test_what_is_refused_leaves_the_old_file(clouds: Any, tmp_path: Path) -> None:
    x, y = clouds(("cow", "dog"), 5)
    model = DeepCCGClassifier(epochs=1).fit(x, y)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with pytest.raises(NotFittedError):
        DeepCCGClassifier().export(path)
    with pytest.raises(InputError, match="format is 'tflite'"):
        model.export(path, format="tflite")
    with pytest.raises(InputError, match="there is no directory"):
        model.export(tmp_path / "nowhere" / "model.onnx")
    with pytest.raises(InputError, match="is a directory"):
        model.export(tmp_path)
    with pytest.raises(InputError, match="under a task only"):
        DeepCCGClassifier("packnet").partial_fit(x, y, task=["cow", "dog"]).export(path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_a_missing_extra_is_named(
    missing: str, clouds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DeepCCGClassifier(epochs=1).fit(*clouds(("cow", "dog"), 5))
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(InputError, match=rf"needs {missing}.*pip install 'deepccg\[onnx\]'"):
        model.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.randn_like(x)


class Branching(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if float(x.sum()) > 0 else -x


@pytest.mark.slow
@pytest.mark.parametrize(
    ("encoder", "message"), [(Noisy(), "differ by"), (Branching(), "cannot be written as ONNX")]
)
def test_encoders_that_onnx_cannot_express_are_refused(
    encoder: nn.Module, message: str, clouds: Any, tmp_path: Path
) -> None:
    model = DeepCCGClassifier(encoder=encoder, random_state=0).fit(*clouds(("cow", "dog"), 20))
    with pytest.raises(InputError, match=message):
        model.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())
