"""The closed form behind scikit-learn's conventions: any scale, any order, any number of rows."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.model_selection import train_test_split
from torch import nn

from deepccg import CCGClassifier, DeepCCGClassifier, InputError
from deepccg.core import StateMismatch
from deepccg.networks import Flatten, Patches, RobustFourier


def split(data: Any, seed: int = 0) -> Any:
    return train_test_split(*data(return_X_y=True), test_size=0.25, random_state=seed)


def streamed(model: Any, x: Any, y: Any, rows: int = 10) -> Any:
    for begin in range(0, len(x), rows):
        model.partial_fit(x[begin : begin + rows], y[begin : begin + rows])
    return model


def ten_to(powers: Any) -> Any:
    return 10.0 ** np.asarray(powers, dtype=float)


# Scale


def test_raw_features_are_as_good_as_scaled_ones() -> None:
    x, x_test, y, y_test = split(load_wine)
    scale = ten_to(np.linspace(-2, 4, x.shape[1]))
    plain = streamed(CCGClassifier(random_state=0), x, y)
    moved = streamed(CCGClassifier(random_state=0), x * scale + 1e4 * scale, y)
    assert plain.score(x_test, y_test) > 0.95
    np.testing.assert_allclose(
        moved.predict_proba(x_test * scale + 1e4 * scale), plain.predict_proba(x_test), atol=1e-5
    )


@pytest.mark.parametrize("deviation", [0.0, 0.01])
def test_a_feature_that_hardly_varies_is_no_harm(deviation: float) -> None:
    x, x_test, y, y_test = split(load_breast_cancer)
    random = np.random.default_rng(0)
    more, more_test = (1e4 + deviation * random.normal(size=(len(a), 1)) for a in (x, x_test))
    model = streamed(CCGClassifier(random_state=0), np.hstack([x, more]), y)
    assert model.score(np.hstack([x_test, more_test]), y_test) > 0.92


@pytest.mark.parametrize("first", [0.0, 1.0])
def test_a_feature_whose_scale_the_first_class_does_not_show(first: float) -> None:
    """The features that other classifiers have are spoilt by it: the test can tell."""
    x, y = load_breast_cancer(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=(len(x), 1))
    x = np.hstack([x, noise * np.where(y == 0, first, 1e4)[:, None]])
    x, x_test, y, y_test = train_test_split(x, y, random_state=0)
    order = y.argsort(kind="stable")
    scores = [
        streamed(model, x[order], y[order]).score(x_test, y_test)
        for model in (
            CCGClassifier(random_state=0),
            DeepCCGClassifier("ccg", encoder="fourier", random_state=0),
        )
    ]
    assert scores[0] > 0.95
    assert scores[1] < 0.8


# Rows and order


def test_one_call_is_as_good_as_many() -> None:
    x, x_test, y, y_test = split(load_digits)
    once = CCGClassifier(random_state=0).partial_fit(x, y).score(x_test, y_test)
    tens = streamed(CCGClassifier(random_state=0), x, y).score(x_test, y_test)
    assert once > 0.95
    assert abs(once - tens) < 0.02


def test_the_order_of_fit_does_not_matter() -> None:
    x, x_test, y, _ = split(load_digits)
    order = y.argsort(kind="stable")
    shuffled, sorted_ = CCGClassifier(random_state=0), CCGClassifier(random_state=0)
    np.testing.assert_allclose(
        shuffled.fit(x, y).predict_proba(x_test),
        sorted_.fit(x[order], y[order]).predict_proba(x_test),
        atol=1e-9,
    )


def test_classes_one_after_the_other() -> None:
    x, x_test, y, y_test = split(load_digits)
    order = y.argsort(kind="stable")
    assert streamed(CCGClassifier(random_state=0), x[order], y[order]).score(x_test, y_test) > 0.93


def test_answers_from_the_first_row_on() -> None:
    x, _, y, _ = split(load_wine)
    order = y.argsort(kind="stable")
    x, y = x[order], y[order]
    model = CCGClassifier(random_state=0)
    for row in range(110):
        model.partial_fit(x[row : row + 1], y[row : row + 1])
        probability = model.predict_proba(x)
        np.testing.assert_allclose(probability.sum(axis=1), 1)
        assert np.isfinite(model.decision_function(x)).all()
        if y[row] == 0:  # all that is known
            assert set(model.predict(x)) == {0}
        assert (model.predict(x[: row + 1]) == y[: row + 1]).mean() > 0.9
    assert model.learner_.ready


def test_new_classes_and_declared_ones() -> None:
    x, _, y, _ = split(load_wine)
    names = np.array(["c", "a", "b"])[y]
    model = CCGClassifier(random_state=0).partial_fit(x[y == 0], names[y == 0], classes=["z"])
    assert model.classes_.tolist() == ["c", "z"]
    model.partial_fit(x[y > 0], names[y > 0])
    assert model.classes_.tolist() == ["a", "b", "c", "z"]
    assert (model.predict_proba(x)[:, 3] == 0).all()
    assert model.score(x, names) > 0.95
    assert model.class_counts_["seen"].tolist() == [*np.bincount(y)[[1, 2, 0]], 0]


def test_observed_frequencies_are_bayes_rule() -> None:
    x, x_test, y, _ = split(load_breast_cancer)
    uniform, observed = (
        CCGClassifier(class_prior=prior, random_state=0).fit(x, y).predict_proba(x_test)
        for prior in ("uniform", "observed")
    )
    expected = uniform * np.bincount(y)
    np.testing.assert_allclose(observed, expected / expected.sum(axis=1, keepdims=True), atol=1e-9)


def test_half_lives_follow_classes_that_change_places() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(1200, 2))
    y = (x[:, 0] > 0) ^ (np.arange(1200) >= 600)
    fast = streamed(CCGClassifier(half_lives=(50,), random_state=0), x[:900], y[:900])
    slow = streamed(CCGClassifier(random_state=0), x[:900], y[:900])
    assert fast.score(x[900:], y[900:]) > 0.9
    assert slow.score(x[900:], y[900:]) < 0.7


# What describes an input


def test_what_auto_chooses() -> None:
    random, y = np.random.default_rng(0), np.arange(40) % 2
    vectors = random.normal(size=(40, 50))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    one_hot = np.eye(50)[:40]
    images = random.integers(0, 256, size=(40, 16, 16, 3), dtype=np.uint8)
    small = random.normal(size=(40, 8, 8, 1))
    for x, kind in [
        (vectors, RobustFourier), (unit, Flatten), (one_hot, RobustFourier), (images, Patches),
        (small, RobustFourier),
    ]:  # fmt: skip
        model = CCGClassifier(random_state=0).partial_fit(x, y)
        network = model.learner_.network
        assert isinstance(getattr(network, "module", network), kind)
        assert model.predict(x).shape == (40,)


def test_a_module_of_the_users_is_not_trained() -> None:
    x, _, y, _ = split(load_wine)
    module = nn.Linear(13, 4)
    before = copy.deepcopy(module.state_dict())
    model = CCGClassifier(module).fit(x, y)
    assert all((module.state_dict()[name] == value).all() for name, value in before.items())
    assert model.learner_.network(model.learner_.as_input(module.weight)).shape == (4, 4)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"encoder": "mlp"}, "choose auto, identity"),
        ({"class_prior": "even"}, "^class_prior is .even.: choose"),
        ({"half_lives": (-1,)}, "half_lives"),
        ({"encoder_params": {"features": 0}}, "features"),
    ],
)
def test_parameters_that_cannot_be_are_refused(params: dict[str, Any], match: str) -> None:
    x, _, y, _ = split(load_wine)
    with pytest.raises(InputError, match=match):
        CCGClassifier(**params).fit(x, y)


def test_parameters_do_not_change_under_way() -> None:
    x, _, y, _ = split(load_wine)
    model = CCGClassifier(random_state=0).fit(x, y)
    with pytest.raises(InputError, match="half_lives"):
        model.set_params(half_lives=(50,)).partial_fit(x, y)


# Copies and files


@pytest.mark.parametrize("rows", [30, 134])
@pytest.mark.parametrize("half_lives", [None, (50,)])
def test_copies_and_files_go_on(
    rows: int, half_lives: tuple[int, ...] | None, tmp_path: Path
) -> None:
    """While the first examples wait, and after."""
    x, x_test, y, _ = split(load_wine)
    model = streamed(CCGClassifier(half_lives=half_lives, random_state=0), x[:rows], y[:rows])
    model.save(tmp_path / "model.safetensors")
    copies = [
        CCGClassifier.load(tmp_path / "model.safetensors"),
        pickle.loads(pickle.dumps(model)),  # noqa: S301  (of this process)
        copy.deepcopy(model),
    ]
    for each in [model, *copies]:
        each.partial_fit(x[:50], y[:50])
    for each in copies:
        assert each.classes_.tolist() == model.classes_.tolist()
        np.testing.assert_allclose(
            each.predict_proba(x_test), model.predict_proba(x_test), atol=1e-9
        )
    fresh = clone(model).fit(x, y)
    assert fresh.learner_.steps == 1


def test_files_of_the_other_classifier_are_refused(tmp_path: Path) -> None:
    x, _, y, _ = split(load_wine)
    kinds = (CCGClassifier, DeepCCGClassifier)
    for kind, other in (kinds, kinds[::-1]):
        kind(random_state=0).partial_fit(x, y).save(tmp_path / "model.safetensors")
        with pytest.raises(StateMismatch, match=f"holds a {kind.__name__}, not a {other.__name__}"):
            other.load(tmp_path / "model.safetensors")


def test_a_parameter_set_afterwards_is_loaded_as_it_was(tmp_path: Path) -> None:
    x, _, y, _ = split(load_wine)
    model = CCGClassifier(half_lives=(50,), random_state=0).fit(x, y)
    model.set_params(half_lives=None, class_prior="observed").save(tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match="as when learning began"):
        loaded = CCGClassifier.load(tmp_path / "model.safetensors")
    assert (list(loaded.half_lives), loaded.class_prior) == ([50], "uniform")
    loaded.partial_fit(x, y)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [30, 134])
def test_it_is_exported(rows: int, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x, x_test, y, _ = split(load_wine)
    model = streamed(CCGClassifier(random_state=0), x[:rows], y[:rows])
    model.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    found = session.run(["probabilities"], {"x": x_test})[0]
    np.testing.assert_allclose(found, model.predict_proba(x_test), atol=1e-6)
