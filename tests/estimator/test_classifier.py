"""The classifier against the learner underneath it, and inside scikit-learn's tools."""

import warnings
from enum import Enum
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import logsumexp
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from deepccg import METHODS, Batch, DeepCCG, DeepCCGClassifier, InputError
from deepccg.estimator.base import log_odds


def test_predictions_are_the_learners(clouds: Any) -> None:
    """Same network, same batches, through the library: same probabilities, columns permuted."""
    module = nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8)).double()
    model = DeepCCGClassifier(encoder=module, memory=12, random_state=0)
    model.partial_fit(*clouds(("dog", "cow"), 5, seed=0))
    model.partial_fit(*clouds(("ant", "dog"), 5, seed=1))
    module.dim = 8
    learner = DeepCCG(module, memory=12, seed=model._spec.seed)
    code = {label: k for k, label in enumerate(dict.fromkeys(clouds(("dog", "cow"), 5)[1]))}
    code["ant"] = 2
    for seed, names in enumerate((("dog", "cow"), ("ant", "dog"))):
        x, y = clouds(names, 5, seed=seed)
        learner.learn(Batch(torch.from_numpy(x), torch.tensor([code[label] for label in y])))
    x, _ = clouds(("ant", "bee", "cow", "dog"), 5, seed=2)
    expected = learner.predict_proba(torch.from_numpy(x)).numpy()
    columns = [learner.classes.index(code[label]) for label in ("ant", "cow", "dog")]
    np.testing.assert_allclose(model.predict_proba(x), expected[:, columns], rtol=1e-12)
    assert model.classes_.tolist() == ["ant", "cow", "dog"]


def test_new_classes_need_no_declaration(clouds: Any) -> None:
    model = DeepCCGClassifier(memory=40, random_state=0)
    for step in range(30):
        names = ("dog", "cow") if step < 15 else ("ant", "bee")
        model.partial_fit(*clouds(names, 5, seed=step))
        assert set(model.classes_) == (
            {"dog", "cow"} if step < 15 else {"ant", "bee", "cow", "dog"}
        )
    x, y = clouds(("ant", "bee", "cow", "dog"), 20, seed=99)
    assert model.score(x, y) > 0.95


def test_a_call_is_a_step_per_ten_rows_and_batch_size_splits_it(clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 10)
    one = DeepCCGClassifier(random_state=0).partial_fit(x[:10], y[:10])
    three = DeepCCGClassifier(random_state=0).partial_fit(*clouds(("dog", "cow"), 11))
    whole = DeepCCGClassifier(random_state=0, batch_size=20).partial_fit(x, y)
    split = DeepCCGClassifier(random_state=0, batch_size=6).partial_fit(x, y)
    parts = DeepCCGClassifier(random_state=0)
    for begin in range(0, 20, 6):
        parts.partial_fit(x[begin : begin + 6], y[begin : begin + 6])
    assert [m.learner_.steps for m in (one, three, whole, split)] == [1, 3, 1, 4]
    np.testing.assert_array_equal(split.predict_proba(x), parts.predict_proba(x))


def test_fit_starts_over_and_stores_no_example_twice(clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 10)
    model = DeepCCGClassifier(random_state=0, epochs=4, batch_size=7)
    model.partial_fit(*clouds(("bee", "ant"), 5)).fit(x, y)
    assert model.classes_.tolist() == ["cow", "dog"]
    assert model.learner_.steps == 4 * 3
    stored = sorted(map(tuple, model.memory_["x"].tolist()))
    assert stored == sorted(map(tuple, x.tolist()))
    assert model.class_counts_["seen"].tolist() == [10, 10]
    again = clone(model).fit(x, y)
    np.testing.assert_array_equal(model.predict_proba(x), again.predict_proba(x))


@pytest.mark.parametrize("scale", ["learned", "fitted"])
def test_what_is_learned_survives_the_passes_of_fit(clouds: Any, scale: str) -> None:
    x, y = clouds(("dog", "cow"), 10)
    fields = {"embedding_scale": scale, "initial_scale": 0.2}
    model = DeepCCGClassifier(epochs=3, batch_size=6, method_params=fields, random_state=0)
    moved = model.fit(x, y).learner_.log_scale.log.detach().exp().item()
    assert (moved > 0.2001) == (scale == "learned")


@pytest.mark.parametrize(
    "labels",
    [
        [3, -7, 100],
        ["b", "a", "zz"],
        [True, False],
        [2.0, 5.0, 9.0],
        np.array(["x", "yy"], dtype=object),
        pd.Series(["p", "q"], dtype="category"),
        pd.Series(["p", "q"], dtype="string"),
        pd.Series([4, 2], dtype=object),
    ],
    ids=str,
)
def test_any_label_type(labels: Any) -> None:
    labels = list(labels)
    x = np.eye(3).repeat(8, axis=0)[: 8 * len(labels)]
    y = np.repeat(labels, 8)
    model = DeepCCGClassifier(random_state=0, epochs=1).fit(x, y)
    assert model.classes_.tolist() == sorted(labels)
    np.testing.assert_array_equal(model.predict(x), y)


@pytest.mark.parametrize("bad", [["a", None], ["a", float("nan")], [1.0, float("nan")], ["a", 1]])
def test_missing_labels_are_refused(bad: list[Any]) -> None:
    with pytest.raises(ValueError, match=r"NaN|None|mixed"):
        DeepCCGClassifier().partial_fit(np.eye(2), np.array(bad, dtype=object))


def test_names_that_are_members_of_an_enumeration() -> None:
    """NumPy would cut them short, and take some for others."""
    colour = Enum("colour", {"RED": "red", "ROSE": "rose", "BLUE": "blue"}, type=str)
    for y in (list(colour), np.array(list(colour), dtype=object)):
        model = DeepCCGClassifier(random_state=0).partial_fit(np.eye(3), y)
        assert model.classes_.tolist() == ["blue", "red", "rose"]


def test_a_refused_call_changes_nothing(clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 5)
    model = DeepCCGClassifier(random_state=0).partial_fit(x, y)
    before = model.predict_proba(x)
    for arguments in (
        {"X": x, "y": np.arange(10)},
        {"X": x[:, :2], "y": y},
        {"X": x, "y": y[:3]},
        {"X": x * np.inf, "y": y},
        {"X": x, "y": y, "task": ["dog", "ant"]},
        {"X": x, "y": y, "classes": [1, 2]},
    ):
        with pytest.raises(ValueError, match=r"label|feature|samples|infinity"):
            model.partial_fit(**arguments)
        assert model.classes_.tolist() == ["cow", "dog"]
        np.testing.assert_array_equal(model.predict_proba(x), before)


def test_declared_classes_have_columns_and_no_probability(clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 5)
    model = DeepCCGClassifier(memory=9).partial_fit(x, y, classes=["ant", "cow", "dog"])
    assert model.predict_proba(x).shape == (10, 3)
    assert (model.predict_proba(x)[:, 0] == 0).all()
    assert model.class_counts_["stored"].tolist() == [0, 3, 3]
    model.partial_fit(x, y, classes=["eel"])
    assert model.classes_.tolist() == ["ant", "cow", "dog", "eel"]
    assert np.isfinite(model.decision_function(x)).all()
    assert set(model.predict(x)) <= {"cow", "dog"}


def test_classes_may_be_declared_at_any_call(clouds: Any) -> None:
    """As if they had been declared at the first: each has its share of the memory."""
    x, y = clouds(("dog", "cow"), 20)
    model = DeepCCGClassifier(memory=20, random_state=0).partial_fit(x, y)
    assert model.class_counts_["stored"].tolist() == [10, 10]
    model.partial_fit(x, y, classes=["ant", "bee"])
    assert model.class_counts_["stored"].tolist() == [0, 0, 5, 5]
    assert model.predict_proba(x)[:, :2].max() == 0


@pytest.mark.parametrize("task", [3, "dog"])
def test_a_task_is_a_list_of_labels(task: Any, clouds: Any) -> None:
    with pytest.raises(InputError, match="list the labels that are possible"):
        DeepCCGClassifier().partial_fit(*clouds(("dog", "cow"), 5), task=task)


@pytest.mark.parametrize("method", ["deepccg", "icarl", "er"])
@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_an_encoder_in_half_precision(precision: torch.dtype, method: str, clouds: Any) -> None:
    x, y = clouds(("dog", "cow", "ant"), 20)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = nn.Linear(3, 4).to(precision).requires_grad_(False)
    model = DeepCCGClassifier(method, encoder=encoder, random_state=0).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.learner_.network.module.weight.dtype == precision


def test_a_task_limits_what_is_possible(clouds: Any) -> None:
    model = DeepCCGClassifier(random_state=0)
    for names in (("dog", "cow"), ("ant", "bee")):
        model.partial_fit(*clouds(names, 10), task=names)
    x, _ = clouds(("ant", "bee", "cow", "dog"), 5, seed=3)
    limited = model.predict_proba(x, task=["cow", "ant"])
    assert (limited[:, [1, 3]] == 0).all()
    assert set(model.predict(x, task=["dog"])) == {"dog"}
    with pytest.raises(InputError, match="'eel'"):
        model.predict(x, task=["eel"])
    assert len(model.learner_.class_table.tasks) == 2
    model.partial_fit(*clouds(("cow", "dog"), 10), task=["cow", "dog"])  # the first one again
    assert len(model.learner_.class_table.tasks) == 2


def test_log_odds_against_the_definition() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 4)) * 20
    logits[:10, 1] = -np.inf
    expected = np.stack(
        [logits[:, k] - logsumexp(np.delete(logits, k, axis=1), axis=1) for k in range(4)], axis=1
    )
    expected = np.maximum(expected, -1e9)
    np.testing.assert_allclose(log_odds(logits), expected, rtol=1e-9)
    assert log_odds(np.zeros((1, 1))).tolist() == [[1e9]]


def test_inside_scikit_learns_tools(clouds: Any) -> None:
    x, y = clouds(("ant", "cow", "dog"), 20)
    far = x * [1, 1000, 1] + 50
    pipeline = make_pipeline(StandardScaler(), DeepCCGClassifier(epochs=3, random_state=0))
    assert cross_val_score(pipeline, far, y, cv=3).min() > 0.9
    calibrated = CalibratedClassifierCV(DeepCCGClassifier(epochs=2, random_state=0), cv=3)
    probability = calibrated.fit(x, y).predict_proba(x)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert calibrated.score(x, y) > 0.9


def test_data_frames_are_known_by_their_columns(clouds: Any) -> None:
    x, y = clouds(("cow", "dog"), 10)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    model = DeepCCGClassifier(random_state=0).partial_fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict(frame)
    with pytest.raises(ValueError, match="feature names"):
        model.predict(frame[["b", "a", "c"]])


def test_images_as_bytes_and_as_floats() -> None:
    random = np.random.default_rng(0)
    bright = np.repeat([0, 1], 12)
    images = random.integers(0, 60, size=(24, 16, 18, 3), dtype=np.uint8)
    images[bright == 1] += np.uint8(150)
    images[bright == 1, ::2] = 0  # the network normalises brightness away, stripes it sees
    model = DeepCCGClassifier(random_state=0, epochs=2).fit(images, bright)
    assert type(model.learner_.network).__name__ == "SlimResNet18"
    assert model.input_shape_ == (16, 18, 3)
    assert model.n_features_in_ == 16 * 18 * 3
    assert model.memory_["x"].dtype == np.uint8
    assert {row.tobytes() for row in model.memory_["x"]} == {row.tobytes() for row in images}
    assert model.score(images, bright) > 0.9
    floats = (images.astype(np.float64) - 127.5) / 127.5
    twin = clone(model).fit(floats, bright)
    np.testing.assert_allclose(twin.predict_proba(floats), model.predict_proba(images), atol=1e-3)
    for wrong in (images[..., 0], images[:, :15], images.reshape(24, -1)):
        with pytest.raises(InputError, match="images"):
            model.predict(wrong)


def test_a_module_is_copied_and_frozen_parameters_stay(clouds: Any) -> None:
    x, y = clouds(("cow", "dog"), 10)
    module = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 4))
    given = {name: value.clone() for name, value in module.state_dict().items()}
    model = DeepCCGClassifier(encoder=module, random_state=0, epochs=2).fit(x, y)
    assert all(torch.equal(given[name], value) for name, value in module.state_dict().items())
    trained = model.learner_.network.module.state_dict()
    assert not torch.equal(trained["0.weight"], given["0.weight"])
    frozen = clone(model)
    frozen.encoder.requires_grad_(False)
    kept = frozen.fit(x, y).learner_.network.module.state_dict()
    assert all(torch.equal(given[name], value) for name, value in kept.items())  # BatchNorm's too
    with pytest.raises(InputError, match="cannot embed inputs of shape"):
        DeepCCGClassifier(encoder=nn.Linear(5, 2)).fit(x, y)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_can_be_chosen(method: str, clouds: Any) -> None:
    model = DeepCCGClassifier(method, memory=20, random_state=0)
    for step in range(6):
        names = ("dog", "cow") if step < 3 else ("ant", "bee")
        model.partial_fit(*clouds(names, 5, seed=step), task=names)
    x, y = clouds(("ant", "bee"), 10, seed=9)
    assert model.predict_proba(x, task=["ant", "bee"]).sum() == pytest.approx(20)
    assert (model.predict(x, task=["ant", "bee"]) == y).mean() > 0.8


class ReturnsDict(nn.Module):
    """Returns more than an embedding, as many pretrained models do."""

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"last_hidden_state": x}


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"method": "deepcgc"}, "unknown method 'deepcgc'"),
        ({"method_params": {"lrr": 1}}, "method_params.lrr is not a field; did you mean lr?"),
        ({"encoder": "cnn"}, "encoder is 'cnn'"),
        ({"encoder_params": {"layers": []}}, "encoder_params.layers"),
        ({"encoder": nn.Identity(), "encoder_params": {"width": 3}}, "set up a PretrainedEncoder"),
        ({"epochs": 0}, "epochs is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"memory": -1}, "memory is -1: it must be a whole number from 0 up"),
        ({"memory": 10.0}, "memory is 10.0"),
        ({"memory": True}, "memory is True"),
        ({"device": "gpu"}, "device is 'gpu', which PyTorch cannot use"),
        ({"encoder": "resnet"}, "or encoder='mlp'"),
        ({"encoder": ReturnsDict()}, r"cannot embed inputs of shape \[3\]: it returns a dict"),
    ],
)
def test_wrong_parameters_are_refused_in_one_line(
    params: dict[str, Any], message: str, clouds: Any
) -> None:
    with pytest.raises(InputError, match=message):
        DeepCCGClassifier(**params).fit(*clouds(("cow", "dog"), 3))
