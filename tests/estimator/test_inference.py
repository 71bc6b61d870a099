"""The classifier as one module gives what ``predict_proba`` gives, whatever the method."""

from typing import Any

import numpy as np
import pytest
import torch

from deepccg import METHODS, DeepCCGClassifier, InputError
from deepccg.estimator.onnx_export import Inference

NAMES = ("ant", "bee", "cow", "dog")


def inference(model: DeepCCGClassifier) -> Inference:
    positions = model._labels.positions(model.learner_.classes)
    prior = model.log_prior()
    return Inference(model.learner_, positions, len(model.classes_), prior=prior)


def assert_same(model: DeepCCGClassifier, x: Any, atol: float = 1e-9) -> None:
    probability, label = inference(model)(torch.from_numpy(x))
    np.testing.assert_allclose(probability.numpy(), model.predict_proba(x), atol=atol)
    np.testing.assert_array_equal(model.classes_[label.numpy()], model.predict(x))


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"packnet"}))
def test_every_method_that_predicts_without_a_task(method: str, clouds: Any) -> None:
    model = DeepCCGClassifier(method, memory=20, random_state=0)
    for step in range(6):
        names = ("dog", "cow") if step < 3 else ("ant", "bee")
        model.partial_fit(*clouds(names, 5, seed=step), task=names, classes=["eel"])
    x, _ = clouds(NAMES, 10, seed=9)
    assert_same(model, x)
    assert (inference(model)(torch.from_numpy(x))[0][:, model.classes_ == "eel"] == 0).all()


@pytest.mark.parametrize(
    "fields",
    [
        {"variance": "per-class"},
        {"variance": "per-class", "normalise": True, "embedding_scale": 7.0},
        {"normalise": True},
        {"embedding_scale": "learned"},
    ],
    ids=str,
)
def test_every_reading_of_the_gaussian(fields: dict[str, Any], clouds: Any) -> None:
    model = DeepCCGClassifier(method_params=fields, memory=15, random_state=0)
    model.partial_fit(*clouds(("dog", "cow"), 9)).partial_fit(*clouds(("ant",), 2))
    assert len(set(model.class_counts_["stored"])) > 1  # the variances differ
    for prior in ("uniform", "observed"):
        assert_same(model.set_params(class_prior=prior), clouds(NAMES, 10, seed=9)[0])


def test_only_a_shared_variance_makes_the_classifier_linear(clouds: Any) -> None:
    """Far out, a linear function of z stays one; a distance to another class does not."""
    x = np.array([[10.0, 2.0, -5.0], [20.0, 4.0, -10.0], [30.0, 6.0, -15.0]])
    for variance, linear in (("shared", True), ("per-class", False)):
        model = DeepCCGClassifier(
            encoder="identity", memory=12, method_params={"variance": variance}
        )
        model.partial_fit(*clouds(("dog", "cow"), 9)).partial_fit(*clouds(("ant",), 2))
        logits = inference(model).model[-1](torch.from_numpy(x))
        bend = (logits - logits[:, :1]).diff(n=2, dim=0)
        assert (bend.abs().max() < 1e-9) == linear


def test_embeddings_far_from_the_origin_keep_their_digits() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(60, 3)).astype(np.float32) + np.float32(1000)
    y = np.repeat([0, 1, 2], 20)
    x[np.arange(60), y] += 2
    model = DeepCCGClassifier(encoder="identity", memory=30, random_state=0).partial_fit(x, y)
    assert_same(model, x, atol=1e-4)


def test_nothing_stored_means_all_equal(clouds: Any) -> None:
    for method in ("deepccg", "icarl"):
        model = DeepCCGClassifier(method, memory=0).partial_fit(*clouds(NAMES, 2))
        assert_same(model, clouds(NAMES, 2)[0])


def test_what_cannot_predict_is_refused(clouds: Any) -> None:
    x, y = clouds(("cow", "dog"), 5)
    packed = DeepCCGClassifier("packnet").partial_fit(x, y, task=["cow", "dog"])
    with pytest.raises(InputError, match="under a task only"):
        inference(packed)
    emptied = DeepCCGClassifier().partial_fit(x, y).forget(cls=["cow", "dog"])
    with pytest.raises(InputError, match="nothing was learned"):
        inference(emptied)


def test_the_learner_is_not_touched(clouds: Any) -> None:
    model = DeepCCGClassifier(random_state=0).partial_fit(*clouds(("cow", "dog"), 5))
    before = model.learner_.state_dict().tensors
    made = inference(model)
    for parameter in made.parameters():
        parameter.data.zero_()
    assert all(p.requires_grad for p in model.learner_.network.parameters())
    for name, value in model.learner_.state_dict().tensors.items():
        assert torch.equal(before[name], value)
