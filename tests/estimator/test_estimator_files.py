"""Saved, pickled and copied classifiers go on as the original does."""

import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors import safe_open
from torch import nn

from deepccg import METHODS, DeepCCGClassifier, InputError
from deepccg.core import StateMismatch
from deepccg.learners.state_file import load_state, save_state


def by_file(model: DeepCCGClassifier, path: Path) -> DeepCCGClassifier:
    model.save(path)
    return DeepCCGClassifier.load(path)


def by_pickle(model: DeepCCGClassifier, path: Path) -> DeepCCGClassifier:
    del path
    loaded = pickle.loads(pickle.dumps(model))  # noqa: S301  (our own bytes)
    assert isinstance(loaded, DeepCCGClassifier)
    return loaded


def by_joblib(model: DeepCCGClassifier, path: Path) -> DeepCCGClassifier:
    del path
    file = io.BytesIO()
    joblib.dump(model, file)
    loaded = joblib.load(file)
    assert isinstance(loaded, DeepCCGClassifier)
    return loaded


def by_copy(model: DeepCCGClassifier, path: Path) -> DeepCCGClassifier:
    del path
    return copy.deepcopy(model)


@pytest.mark.parametrize("through", [by_file, by_pickle, by_joblib, by_copy])
@pytest.mark.parametrize("method", ["deepccg", "esmer"])
def test_a_loaded_classifier_continues_bit_for_bit(
    through: Any, method: str, clouds: Any, tmp_path: Path
) -> None:
    model = DeepCCGClassifier(method, memory=9, random_state=3, batch_size=4)
    model.partial_fit(*clouds(("dog", "cow"), 6), task=["cow", "dog"])
    model.partial_fit(*clouds(("ant", "dog"), 6), classes=["bee"])
    twin = through(model, tmp_path / "model")
    assert twin.get_params() == model.get_params()
    for learner in (model, twin):
        learner.partial_fit(*clouds(("bee", "cow"), 6, seed=5), task=["cow", "bee"])
        learner.partial_fit(*clouds(("bee", "ant"), 6, seed=6))
    x, _ = clouds(("ant", "bee", "cow", "dog"), 5, seed=7)
    np.testing.assert_array_equal(twin.predict_proba(x), model.predict_proba(x))
    np.testing.assert_array_equal(
        twin.predict(x, task=["cow", "bee"]), model.predict(x, task=["cow", "bee"])
    )
    np.testing.assert_array_equal(twin.memory_["x"], model.memory_["x"])
    assert twin.classes_.tolist() == ["ant", "bee", "cow", "dog"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_saved(method: str, clouds: Any, tmp_path: Path) -> None:
    model = DeepCCGClassifier(method, memory=8, random_state=0)
    for names in (("dog", "cow"), ("ant", "bee")):
        model.partial_fit(*clouds(names, 4), task=names)
    x, _ = clouds(("ant", "bee"), 4, seed=1)
    twin = by_file(model, tmp_path / "model")
    np.testing.assert_array_equal(
        twin.predict_proba(x, task=["ant", "bee"]), model.predict_proba(x, task=["ant", "bee"])
    )


@pytest.mark.parametrize(
    "labels", [[3, -7], ["b", "a"], [True, False], [2.0, 5.5e9], np.array(["x", "y"], object)]
)
def test_labels_come_back_as_they_were(labels: Any, tmp_path: Path) -> None:
    model = DeepCCGClassifier(random_state=0).partial_fit(np.eye(2), labels)
    twin = by_file(model, tmp_path / "model")
    assert twin.classes_.dtype == model.classes_.dtype
    assert twin.predict(np.eye(2)).tolist() == model.predict(np.eye(2)).tolist()


def test_column_names_come_back(clouds: Any, tmp_path: Path) -> None:
    x, y = clouds(("cow", "dog"), 3)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    twin = by_file(DeepCCGClassifier().partial_fit(frame, y), tmp_path / "model")
    with pytest.raises(ValueError, match="feature names"):
        twin.predict(frame[["b", "a", "c"]])


def test_images_come_back(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 255, size=(6, 4, 5, 2), dtype=np.uint8)
    model = DeepCCGClassifier(encoder="identity", random_state=0).partial_fit(images, [0, 1] * 3)
    twin = by_file(model, tmp_path / "model")
    np.testing.assert_array_equal(twin.predict_proba(images), model.predict_proba(images))
    np.testing.assert_array_equal(twin.memory_["x"], model.memory_["x"])


def test_a_user_module_is_passed_again_on_load(clouds: Any, tmp_path: Path) -> None:
    x, y = clouds(("cow", "dog"), 10)
    model = DeepCCGClassifier(encoder=nn.Linear(3, 4), random_state=0).fit(x, y)
    model.save(tmp_path / "model")
    with pytest.raises(InputError, match="pass encoder="):
        DeepCCGClassifier.load(tmp_path / "model")
    twin = DeepCCGClassifier.load(tmp_path / "model", encoder=nn.Linear(3, 4))
    np.testing.assert_array_equal(twin.predict_proba(x), model.predict_proba(x))
    with pytest.raises(StateMismatch, match="network"):
        DeepCCGClassifier.load(tmp_path / "model", encoder=nn.Linear(3, 5))
    np.testing.assert_array_equal(by_pickle(model, tmp_path).predict(x), model.predict(x))


def test_what_was_frozen_stays_frozen(clouds: Any, tmp_path: Path) -> None:
    x, y = clouds(("cow", "dog"), 10)
    whole = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)).double()
    half_frozen = copy.deepcopy(whole)
    half_frozen[0].requires_grad_(False)
    model = DeepCCGClassifier(encoder=half_frozen, random_state=0).fit(x, y)
    half_frozen.requires_grad_(False).float()  # the user's own: the classifier has a copy
    model.save(tmp_path / "model")
    for twin in (
        DeepCCGClassifier.load(tmp_path / "model", encoder=whole),
        by_pickle(model, tmp_path),
        copy.deepcopy(model).forget(index=0),
    ):
        learns = {name: p.requires_grad for name, p in twin.learner_.network.named_parameters()}
        assert [name for name, flag in learns.items() if flag] == [
            "module.2.weight", "module.2.bias",
        ]  # fmt: skip
    assert all(p.requires_grad for p in whole.parameters())


def test_a_user_module_with_lazy_layers_is_passed_again_on_load(
    clouds: Any, tmp_path: Path
) -> None:
    x, y = clouds(("cow", "dog"), 10)
    lazy = nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(4)).double()
    model = DeepCCGClassifier(encoder=lazy, random_state=0).fit(x, y)
    model.save(tmp_path / "model")
    twin = DeepCCGClassifier.load(tmp_path / "model", encoder=lazy)
    np.testing.assert_array_equal(twin.predict_proba(x), model.predict_proba(x))
    assert len(twin.learner_.trainable_parameters()) == 4


def test_paths_that_cannot_be_written_are_refused(clouds: Any, tmp_path: Path) -> None:
    model = DeepCCGClassifier(random_state=0).fit(*clouds(("cow", "dog"), 3))
    with pytest.raises(InputError, match="is a directory: give the name of a file"):
        model.save(tmp_path)
    with pytest.raises(InputError, match="there is no directory"):
        model.save(tmp_path / "nowhere" / "model")
    with torch.no_grad():
        next(model.learner_.network.parameters()).fill_(torch.nan)
    with pytest.raises(InputError, match="is not finite"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_tensors_and_json(clouds: Any, tmp_path: Path) -> None:
    DeepCCGClassifier(random_state=np.random.RandomState(0)).fit(*clouds(("cow", "dog"), 3)).save(
        tmp_path / "model"
    )
    with safe_open(tmp_path / "model", framework="np") as file:
        (header,) = file.metadata().values()
        assert json.loads(header)["about"]["labels"] == ["cow", "dog"]


def test_what_cannot_be_read_is_refused(clouds: Any, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no file"):
        DeepCCGClassifier.load(tmp_path / "nothing")
    (tmp_path / "noise").write_bytes(b"not a model at all")
    with pytest.raises(StateMismatch, match="damaged"):
        DeepCCGClassifier.load(tmp_path / "noise")
    DeepCCGClassifier().fit(*clouds(("cow", "dog"), 3)).save(tmp_path / "model")
    state, about = load_state(tmp_path / "model")
    for damaged, message in (
        ({}, "no classifier"),
        ({**about, "estimator": 99}, "no classifier"),
        ({key: value for key, value in about.items() if key != "codes"}, "its codes is missing"),
        ({**about, "codes": [0, 5]}, "do not fit"),
        (
            {
                **about,
                "plan": {**about["plan"], "memory": 3},
                "params": {**about["params"], "memory": 3},
            },
            "memory",
        ),
    ):
        save_state(tmp_path / "damaged", state, damaged)
        with pytest.raises(StateMismatch, match=message):
            DeepCCGClassifier.load(tmp_path / "damaged")


def test_parameters_set_after_learning_do_not_stand_in_its_way(clouds: Any, tmp_path: Path) -> None:
    x, y = clouds(("cow", "dog"), 3)
    model = DeepCCGClassifier(memory=9, random_state=0).partial_fit(x, y)
    twin = copy.deepcopy(model).set_params(memory=3, batch_size=0, epochs=2)
    twin.save(tmp_path / "model")
    with pytest.warns(UserWarning, match="memory, batch_size: as when learning began"):
        loaded = DeepCCGClassifier.load(tmp_path / "model")
    assert (loaded.memory, loaded.batch_size, loaded.epochs) == (9, None, 2)
    np.testing.assert_array_equal(
        loaded.partial_fit(x, y).predict_proba(x), model.partial_fit(x, y).predict_proba(x)
    )


def test_values_that_json_cannot_hold_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    model = DeepCCGClassifier(method_params={"lr": np.float32(0.1)})
    model.partial_fit(np.eye(2), ["cow", "dog"])
    with pytest.raises(InputError, match="JSON"):
        model.save(tmp_path / "model")
    assert list(tmp_path.iterdir()) == []
