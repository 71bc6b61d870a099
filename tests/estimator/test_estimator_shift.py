"""``shift_`` against a computation by hand, and what it must not touch."""

import dataclasses
import logging
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from scipy.spatial.distance import cdist, pdist
from sklearn.exceptions import NotFittedError
from torch import nn

from deepccg import DeepCCGClassifier, InputError

NAMES = ("ant", "cow", "dog")

Array = npt.NDArray[np.float64]


def moving_model(method: str = "deepccg") -> DeepCCGClassifier:
    """A linear embedding that large steps throw about."""
    torch.manual_seed(0)
    fields = {"lr": 2.0} if method == "deepccg" else {"lr": 0.5}
    encoder = nn.Linear(3, 4).double()
    return DeepCCGClassifier(
        method, method_params=fields, encoder=encoder, memory=12, batch_size=12, random_state=0
    )


@torch.no_grad()
def embedded(model: DeepCCGClassifier, x: Array) -> Array:
    z: Array = model.learner_.network(torch.from_numpy(x)).numpy()
    return z


def class_means(model: DeepCCGClassifier) -> Array:
    """Of the stored examples' embeddings, in the order of ``NAMES``."""
    table = model.memory_
    z = embedded(model, table["x"])
    return np.stack([z[table["label"] == name].mean(axis=0) for name in NAMES])


def share_nearest(z: Array, means: Array, labels: npt.NDArray[Any]) -> float:
    """With one variance for all classes, the nearest mean is the prediction."""
    return float((np.array(NAMES)[cdist(z, means).argmin(axis=1)] == labels).mean())


def test_shift_against_a_computation_by_hand(clouds: Any) -> None:
    model = moving_model()
    for seed in range(3):
        model.partial_fit(*clouds(NAMES, 4, seed=seed))
    assert model.shift_.steps == 0
    table = model.memory_
    z_then, means_then = embedded(model, table["x"]), class_means(model)
    for seed in range(3, 8):
        x, y = clouds(NAMES, 4, seed=seed)
        model.partial_fit(-0.5 * x, y)  # the world turns round
    z_now, means_now = embedded(model, table["x"]), class_means(model)
    found = model.shift_
    distance = np.linalg.norm(z_now - z_then, axis=1).mean()
    after = share_nearest(z_now, means_now, table["label"])
    stale = share_nearest(z_now, means_then, table["label"])
    assert (found.steps, found.examples) == (5, 12)
    assert found.distance == pytest.approx(distance, rel=1e-9)
    assert found.relative == pytest.approx(distance / pdist(z_then).mean(), rel=1e-9)
    assert found.accuracy_before == share_nearest(z_then, means_then, table["label"])
    assert found.accuracy_after == after
    assert found.misalignment == pytest.approx(stale - after, abs=1e-12)
    assert stale != after  # else nothing was tested
    assert found.distance > 0


def test_shift_is_measured_since_the_last_reading(
    clouds: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="deepccg")
    model = moving_model().partial_fit(*clouds(NAMES, 4))
    assert all(math.isnan(v) for v in dataclasses.astuple(model.shift_)[2:])
    assert not caplog.records
    model.partial_fit(*clouds(NAMES, 4, seed=1)).partial_fit(*clouds(NAMES, 4, seed=2))
    first = model.shift_
    model.predict(clouds(NAMES, 4)[0])
    assert model.shift_ is first  # nothing was learned
    model.partial_fit(*clouds(NAMES, 4, seed=3))
    assert (first.steps, model.shift_.steps) == (2, 1)
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2
    assert f"{first.distance:.4g}" in messages[0]


def test_a_fixed_embedding_does_not_shift(clouds: Any) -> None:
    model = DeepCCGClassifier(encoder="identity", memory=12).partial_fit(*clouds(NAMES, 4))
    assert model.shift_.examples == 0
    found = model.partial_fit(*clouds(NAMES, 4, seed=1)).shift_
    assert (found.distance, found.relative, found.misalignment) == (0.0, 0.0, 0.0)


def test_reading_does_not_change_learning(clouds: Any) -> None:
    read, unread = moving_model(), moving_model()
    for seed in range(4):
        read.partial_fit(*clouds(NAMES, 4, seed=seed))
        assert read.shift_ is not None
        unread.partial_fit(*clouds(NAMES, 4, seed=seed))
    x, _ = clouds(NAMES, 4, seed=9)
    np.testing.assert_array_equal(read.predict_proba(x), unread.predict_proba(x))


def test_copies_and_new_fits_start_a_new_measurement(clouds: Any, tmp_path: Path) -> None:
    model = DeepCCGClassifier(memory=12, batch_size=12, random_state=0)
    model.partial_fit(*clouds(NAMES, 4))
    assert model.shift_.steps == 0
    model.partial_fit(*clouds(NAMES, 4, seed=1))
    model.save(tmp_path / "model")
    copies = [
        pickle.loads(pickle.dumps(model)),  # noqa: S301  (our own bytes)
        DeepCCGClassifier.load(tmp_path / "model"),
    ]
    assert [copy.shift_.steps for copy in copies] == [0, 0]
    assert model.shift_.steps == 1
    model.forget(index=0)
    assert not [value for value in vars(model).values() if type(value).__name__ == "ShiftMonitor"]
    assert model.partial_fit(*clouds(NAMES, 4, seed=2)).shift_.steps == 0
    assert model.fit(*clouds(NAMES, 4)).shift_.steps == 0


def test_a_learned_head_can_be_followed(clouds: Any) -> None:
    model = moving_model("er").partial_fit(*clouds(NAMES, 4))
    assert model.shift_.steps == 0
    table = model.memory_
    before = embedded(model, table["x"])
    head = [parameter.detach().numpy().copy() for parameter in model.learner_.head.parameters()]
    model.partial_fit(*clouds(NAMES, 4, seed=1))
    after = embedded(model, table["x"])
    columns = np.array([model._labels.labels[p] for p in model._labels.positions(range(3))])
    stale = (columns[(after @ head[0].T + head[1]).argmax(axis=1)] == table["label"]).mean()
    now = (model.predict(table["x"]) == table["label"]).mean()
    found = model.shift_
    assert found.distance == pytest.approx(np.linalg.norm(after - before, axis=1).mean())
    assert found.misalignment == pytest.approx(stale - now, abs=1e-12)


def test_an_empty_memory_has_no_shift(clouds: Any) -> None:
    with pytest.raises(NotFittedError):
        _ = DeepCCGClassifier().shift_
    with pytest.raises(InputError, match="memory is empty"):
        _ = DeepCCGClassifier("sgd", memory=0).partial_fit(*clouds(NAMES, 4)).shift_
