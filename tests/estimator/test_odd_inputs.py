"""Tensors of every kind and frames of other libraries: taken, or refused in one line."""

import importlib.util
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pytest
import torch
from torch import nn

from deepccg import METHODS, DeepCCGClassifier, InputError
from deepccg.estimator.river import RiverClassifier

X = np.random.default_rng(0).normal(size=(6, 3))
Y = ["a", "b", "c"] * 2
IMAGES = np.random.default_rng(0).normal(size=(6, 4, 4, 1)).astype(np.float32)
NAMES = ["p", "q", "r"]


class OnlyToNumpy:
    """What every data frame has, and nothing else."""

    def __init__(self, values: Any) -> None:
        self._values = np.asarray(values)

    def to_numpy(self) -> npt.NDArray[Any]:
        return self._values


class Lazy:
    """A query that was not run."""

    def collect(self) -> OnlyToNumpy:
        return OnlyToNumpy(X)


def expected() -> npt.NDArray[np.float64]:
    return DeepCCGClassifier(random_state=0).partial_fit(X, Y).predict_proba(X)


def tensor() -> torch.Tensor:
    return torch.from_numpy(X.copy())


@pytest.mark.parametrize(
    "given",
    [
        tensor().requires_grad_(),
        nn.Parameter(tensor()),
        tensor().requires_grad_() * 1,
        [row.requires_grad_() for row in tensor()],
        torch._neg_view(-tensor()),
        OnlyToNumpy(X),
        pa.table(dict(zip(NAMES, X.T, strict=True))),
    ],
    ids=["grad", "parameter", "computed", "list", "negative", "to_numpy", "arrow"],
)
def test_what_holds_the_numbers_is_taken(given: Any) -> None:
    model = DeepCCGClassifier(random_state=0).partial_fit(given, OnlyToNumpy(Y))
    np.testing.assert_array_equal(model.predict_proba(given), expected())
    model.partial_fit(given, Y)


def test_a_polars_frame_is_taken_with_its_names() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame(X, schema=NAMES)
    model = DeepCCGClassifier(random_state=0).partial_fit(frame, polars.Series(Y))
    np.testing.assert_array_equal(model.predict_proba(frame), expected())
    assert model.feature_names_in_.tolist() == NAMES
    with pytest.raises(InputError, match="call collect"):
        model.predict(frame.lazy())


def test_half_precision_is_taken() -> None:
    short = tensor().bfloat16()
    model = DeepCCGClassifier(random_state=0).partial_fit(short, Y)
    same = DeepCCGClassifier(random_state=0).partial_fit(short.float().numpy(), Y)
    np.testing.assert_array_equal(model.predict_proba(short), same.predict_proba(short.float()))


def test_images_with_a_gradient_are_taken() -> None:
    images = torch.from_numpy(IMAGES).requires_grad_()
    model = DeepCCGClassifier(encoder="identity", random_state=0).partial_fit(images, Y)
    assert model.predict(images).shape == (6,)
    with pytest.raises(InputError, match="meta"):
        model.predict(images.to("meta"))


@pytest.mark.parametrize("labels", [torch.arange(6.0).requires_grad_(), torch.arange(6).bfloat16()])
def test_labels_of_tensors_are_taken(labels: Any) -> None:
    model = DeepCCGClassifier(random_state=0).partial_fit(X, labels)
    assert model.classes_.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (tensor().to("meta"), "on the device meta"),
        ([row.to("meta") for row in tensor()], "on the device meta"),
        (tensor().to_sparse(), "to_dense"),
        (Lazy(), "is a Lazy, not computed yet: call collect"),
    ],
    ids=["meta", "list", "sparse", "lazy"],
)
def test_what_holds_no_numbers_is_refused(given: Any, message: str) -> None:
    model = DeepCCGClassifier(random_state=0)
    with pytest.raises(InputError, match=f"X .*{message}"):
        model.partial_fit(given, Y)
    with pytest.raises(InputError, match=f"y .*{message}"):
        model.partial_fit(X, given)
    model.partial_fit(X, Y)
    with pytest.raises(InputError, match=message) as refusal:
        model.predict(given)
    assert "\n" not in str(refusal.value)
    np.testing.assert_array_equal(model.predict_proba(X), expected())


@pytest.mark.parametrize("device", ["meta", torch.device("meta")])
def test_a_device_without_numbers_is_refused(device: Any) -> None:
    with pytest.raises(InputError, match="device is 'meta'"):
        DeepCCGClassifier(device=device).partial_fit(X, Y)


@pytest.mark.parametrize("memory", [0, 4])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_asking_for_any_attribute_never_raises(method: str, memory: int) -> None:
    model = DeepCCGClassifier(method, memory=memory, random_state=0)
    assert not hasattr(model, "shift_")
    assert not hasattr(model.partial_fit(X, Y), "nothing")
    stored = len(model.memory_["index"])
    assert hasattr(model, "shift_") == (stored > 0)
    assert ("shift_" in dir(model)) == (stored > 0)
    if not stored:
        with pytest.raises(InputError, match="memory is empty"):
            _ = model.shift_


def test_river_takes_frames_of_other_libraries() -> None:
    frame = pd.DataFrame(X, columns=NAMES)
    model, same = RiverClassifier(seed=0), RiverClassifier(seed=0)
    same.learn_many(frame, pd.Series(Y))
    table = pa.table(frame)
    model.learn_many(table, pa.array(Y))
    pd.testing.assert_frame_equal(model.predict_proba_many(table), same.predict_proba_many(frame))
    assert model.predict_many(table).tolist() == same.predict_many(frame).tolist()
    if importlib.util.find_spec("polars"):
        import polars

        assert model.predict_many(polars.from_pandas(frame)).shape == (6,)
    for call in (model.predict_many, lambda x: model.learn_many(x, Y)):
        with pytest.raises(InputError, match="a data frame is needed"):
            call([{"p": 1.0}])
