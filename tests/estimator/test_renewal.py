"""The classifiers follow classes that change, unless that is switched off."""

import numpy as np
import pytest

from deepccg import DeepCCGClassifier
from deepccg.estimator.river import RiverClassifier
from deepccg.estimator.spec import LearnerSpec

CORNERS = np.array([[0, 0], [0, 4], [4, 0], [4, 4]])


def corner_stream(number: int, moved: int, seed: int = 0):
    """Four classes in the corners of a square; ``moved`` corners on, each."""
    random = np.random.default_rng(seed)
    y = random.integers(4, size=number)
    return CORNERS[(y + moved) % 4] + random.normal(size=(number, 2)), y


def after_the_change(model) -> float:
    """The share that is right after all classes have moved on to the next corner."""
    for moved in (0, 1):
        x, y = corner_stream(600, moved, seed=moved)
        for begin in range(0, len(x), 10):
            model.partial_fit(x[begin : begin + 10], y[begin : begin + 10])
    return model.score(*corner_stream(400, moved=1, seed=2))


def test_changing_classes_are_followed():
    assert after_the_change(DeepCCGClassifier(memory=100, random_state=0)) > 0.9


def test_without_renewal_the_first_examples_stay():
    model = DeepCCGClassifier(memory=100, random_state=0, method_params={"renewal": 0})
    assert after_the_change(model) < 0.6


@pytest.mark.slow
def test_river_follows_changing_classes():
    model, right = RiverClassifier(memory=100, seed=0), []
    for moved in (0, 1):
        for x, y in zip(*corner_stream(300, moved, seed=moved), strict=True):
            row = dict(enumerate(x.tolist()))
            right.append(model.predict_one(row) == y)
            model.learn_one(row, int(y))
    assert np.mean(right[200:300]) > 0.9
    assert np.mean(right[-100:]) > 0.85


def test_given_fields_override_the_default():
    model = DeepCCGClassifier(method_params={"renewal": 0.3, "replay": 5}).partial_fit([[0.0]], [1])
    assert model.learner_.config.renewal == 0.3
    assert DeepCCGClassifier().partial_fit([[0.0]], [1]).learner_.config.renewal == "errors"
    assert DeepCCGClassifier().get_params()["method_params"] is None


@pytest.mark.filterwarnings("error")
def test_a_file_older_than_the_default_continues_unchanged(tmp_path, monkeypatch):
    x, y = corner_stream(60, 0)
    with monkeypatch.context() as before:
        before.setattr(LearnerSpec, "DEFAULTS", {})
        before.setattr(LearnerSpec, "ON_VECTORS", {})
        old = DeepCCGClassifier(memory=20, random_state=0).partial_fit(x, y)
        old.save(tmp_path / "old")
        old.partial_fit(*corner_stream(60, 1))
    loaded = DeepCCGClassifier.load(tmp_path / "old")
    assert loaded.learner_.config.renewal == 0
    loaded.partial_fit(*corner_stream(60, 1))
    np.testing.assert_array_equal(loaded.memory_["x"], old.memory_["x"])
