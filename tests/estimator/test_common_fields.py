"""Parameters that people tune: fields of methods, as searches need them, and the class prior."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

from deepccg import DeepCCGClassifier, InputError
from deepccg.estimator.river import RiverClassifier


def test_common_fields_are_parameters(clouds: Any, tmp_path: Path) -> None:
    x, y = clouds(("dog", "cow"), 20)
    model = DeepCCGClassifier(lr=0.03, replay=5, repeats=2, random_state=0).partial_fit(x, y)
    fields = {"lr": 0.03, "replay": 5, "repeats": 2}
    same = DeepCCGClassifier(method_params=fields, random_state=0)
    expected = same.partial_fit(x, y).partial_fit(x, y).predict_proba(x)
    model.save(tmp_path / "model")
    for each in (model, DeepCCGClassifier.load(tmp_path / "model")):
        np.testing.assert_array_equal(each.partial_fit(x, y).predict_proba(x), expected)
    model.set_params(lr=0.3).save(tmp_path / "changed")
    with pytest.raises(InputError, match=r"method_params is .*since learning began"):
        model.partial_fit(x, y)
    with pytest.warns(UserWarning, match="method_params, lr, replay, repeats: as when"):
        again = DeepCCGClassifier.load(tmp_path / "changed")
    assert again.partial_fit(x, y).method_params["lr"] == 0.03
    with pytest.raises(InputError, match="lr is given twice"):
        DeepCCGClassifier(lr=0.03, method_params={"lr": 0.1}).fit(x, y)
    grid = GridSearchCV(DeepCCGClassifier(epochs=1), {"lr": [1e-6, 0.1]}, cv=2).fit(x, y)
    assert grid.best_estimator_.learner_.config.lr == grid.best_params_["lr"]


def test_river_has_them_too(clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 10)
    params = {"lr": 0.03, "replay": 5, "repeats": 2, "class_prior": "observed"}
    model, same = RiverClassifier(seed=0, **params), DeepCCGClassifier(random_state=0, **params)
    for row, label in zip(x, y, strict=True):
        model.learn_one(dict(enumerate(row)), label)
        same.partial_fit(row[None], [label])
    found = [list(model.predict_proba_one(dict(enumerate(row))).values()) for row in x]
    np.testing.assert_allclose(found, same.predict_proba(x), rtol=1e-9)


def test_the_observed_prior_is_bayes_rule(clouds: Any, tmp_path: Path) -> None:
    many, few = clouds(("dog", "ant"), 30), clouds(("cow",), 4)
    model = DeepCCGClassifier(random_state=0).partial_fit(*many, classes=["eel"]).partial_fit(*few)
    x = np.random.default_rng(1).normal(size=(60, 3)) * 2  # some near the boundaries
    for task in (None, ["ant", "cow"]):
        uniform = model.set_params(class_prior="uniform").predict_proba(x, task)
        product = uniform * np.array([30, 4, 30, 0])  # how likely each class is, and how frequent
        expected = product / product.sum(axis=1, keepdims=True)
        assert np.abs(expected - uniform).max() > 0.1
        model.set_params(class_prior="observed").save(tmp_path / "model")
        for each in (model, DeepCCGClassifier.load(tmp_path / "model")):
            np.testing.assert_allclose(each.predict_proba(x, task), expected, rtol=1e-9)


def test_priors_that_cannot_be_are_refused(clouds: Any) -> None:
    x, y = clouds(("dog", "ant"))
    for wrong, message in (
        ({"class_prior": "balanced"}, "class_prior is 'balanced': choose"),
        ({"class_prior": "observed", "method": "er"}, "er has a prior of its own"),
    ):
        with pytest.raises(InputError, match=message):
            DeepCCGClassifier(**wrong).partial_fit(x, y)
    with pytest.raises(InputError, match="choose uniform or observed"):
        DeepCCGClassifier().partial_fit(x, y).set_params(class_prior="balanced").predict(x)
