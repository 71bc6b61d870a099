"""The River face: River's own checks, and what it promises beyond them."""

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import base, checks, compose, datasets, evaluate, metrics, preprocessing
from torch import nn

from deepccg import METHODS, DeepCCGClassifier, InputError
from deepccg.estimator.river import RiverClassifier

SMALL = {"memory": 20, "encoder_params": {"layers": (8,)}, "seed": 0}
Example = tuple[dict[str, Any], str]


def unseeded(batch_size: int) -> RiverClassifier:
    """River seeds what its checks need seeded. Steps are as cheap as they can be."""
    cheap = {"memory": 20, "encoder_params": {"layers": (8,)}, "replay": 10, "repeats": 1}
    return RiverClassifier(**cheap, batch_size=batch_size)


def named(check: Any) -> str:
    return str(getattr(check, "__name__", check))


@pytest.mark.slow
@pytest.mark.parametrize("check", list(checks.yield_checks(unseeded(1))), ids=named)
def test_river_accepts_it(check: Callable[[Any], None]) -> None:
    """All of ``river.checks.check_estimator``, none left out."""
    assert RiverClassifier()._unit_test_skips() == set()
    check(unseeded(1))


QUICK = {
    "check_predict_proba_one",
    "check_classifier_tracks_seen_labels",
    "check_learn_many_matches_learn_one",
    "check_predict_many_matches_predict_one",
    "check_no_state_aliasing_with_input",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "check", [c for c in checks.yield_checks(unseeded(7)) if named(c) in QUICK], ids=named
)
def test_river_accepts_examples_that_wait(check: Callable[[Any], None]) -> None:
    check(unseeded(7))


def stream(rows: int = 30, seed: int = 0) -> Iterator[Example]:
    """Two features around a corner of each label's own."""
    random = np.random.default_rng(seed)
    corners = {"cow": (2.0, -2.0), "dog": (-2.0, 2.0), "ant": (2.0, 2.0)}
    for _ in range(rows):
        label = str(random.choice(list(corners)))
        a, b = np.array(corners[label]) + random.normal(size=2) * 0.4
        yield {"a": float(a), "b": float(b)}, label


def learned(model: RiverClassifier, examples: Iterator[Example]) -> RiverClassifier:
    for x, y in examples:
        model.learn_one(x, y)
    return model


def test_it_is_the_same_classifier_as_that_of_scikit_learn() -> None:
    """One example, one step: the same engine, seed and steps give the same probabilities."""
    model = learned(RiverClassifier(**SMALL), stream())
    twin = DeepCCGClassifier(memory=20, encoder="mlp", encoder_params={"layers": (8,)})
    twin.set_params(random_state=0)
    for x, y in stream():
        twin.partial_fit(np.array([[x["a"], x["b"]]]), [y])
    for x, _ in stream(5, seed=1):
        (expected,) = twin.predict_proba([[x["a"], x["b"]]])
        found = model.predict_proba_one(x)
        assert list(found) == ["ant", "cow", "dog"]
        np.testing.assert_array_equal(list(found.values()), expected)


def test_it_learns() -> None:
    model = preprocessing.StandardScaler() | RiverClassifier(**SMALL)
    score = evaluate.progressive_val_score(stream(100), model, metrics.Accuracy())
    assert score.get() > 0.85


def test_before_anything_was_learned() -> None:
    model = RiverClassifier()
    frame = pd.DataFrame({"a": [1.0, 2.0]}, index=[7, 9])
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_many(frame).tolist() == [None, None]
    assert model.predict_proba_many(frame).shape == (2, 0)


def test_rows_need_a_fitted_classifier() -> None:
    model = RiverClassifier(batch_size=2, **SMALL)
    model.learn_one({"a": 1.0}, "cow")  # it waits
    with pytest.raises(InputError, match="nothing was learned yet"):
        model.rows([{"a": 1.0}])
    model.learn_one({"a": 2.0, "b": 1.0}, "dog")
    assert model.rows([]).shape == (0, 2)
    assert model.rows(pd.DataFrame({"a": []})).shape == (0, 2)


@pytest.mark.parametrize("rows", [0, 3, 4])
def test_empty_frames_give_empty_predictions(rows: int) -> None:
    """Before anything was learned, while examples wait, and afterwards."""
    model = learned(RiverClassifier(batch_size=4, **SMALL), stream(rows, seed=3))
    frame = pd.DataFrame({"a": [1.0], "b": [2.0]}, index=["x"])
    assert model.predict_many(frame[:0]).index.equals(frame.index[:0])
    found = model.predict_proba_many(frame[:0])
    assert found.index.equals(frame.index[:0])
    assert found.columns.tolist() == model.predict_proba_many(frame).columns.tolist()


def test_examples_wait_for_their_batch() -> None:
    model = RiverClassifier(batch_size=10, **SMALL)
    learned(model, stream(9))
    assert set(model.predict_proba_one({"a": 1.0}).values()) == {1 / 3}  # only names are known
    learned(model, stream(1, seed=2))
    assert model.classifier.learner_.steps == 1
    model.learn_one({"a": 0.0, "b": 0.0}, "eel")
    probability = model.predict_proba_one({"a": 0.0, "b": 0.0})
    assert probability["eel"] == 0.0
    assert sum(probability.values()) == pytest.approx(1)


@pytest.mark.parametrize("batch_size", [1, 4])
def test_many_rows_are_as_many_single_ones(batch_size: int) -> None:
    """Also where a feature first appears in the middle of a frame."""
    examples = [(x if i < 7 else {**x, "late": 0.1 * i}, y) for i, (x, y) in enumerate(stream(18))]
    one = learned(RiverClassifier(batch_size=batch_size, **SMALL), iter(examples))
    many = RiverClassifier(batch_size=batch_size, **SMALL)
    for begin in range(0, 18, 9):
        rows = examples[begin : begin + 9]
        many.learn_many(pd.DataFrame([x for x, _ in rows]), pd.Series([y for _, y in rows]))
    assert one.features == many.features == ["a", "b", "late"]
    assert one.classifier.learner_.steps == many.classifier.learner_.steps == 18 // batch_size
    for x, _ in examples:
        assert one.predict_proba_one(x) == pytest.approx(many.predict_proba_one(x), abs=1e-9)


def test_a_new_feature_changes_no_prediction_before_it_is_learned() -> None:
    model = learned(RiverClassifier(**SMALL), stream())
    before = [model.predict_proba_one({"a": a, "b": 0.3}) for a in (-1.0, 2.0)]
    with_new = [model.predict_proba_one({"a": a, "b": 0.3, "c": 5.0}) for a in (-1.0, 2.0)]
    assert with_new == before
    state = copy.deepcopy(model)
    state._add_features(["c"])  # room is made, nothing is learned
    assert state.classifier.n_features_in_ == 4
    asked = ({"a": -1.0, "b": 0.3, "c": 5.0}, {"a": 2.0, "b": 0.3})
    for x, expected in zip(asked, before, strict=True):
        assert state.predict_proba_one(x) == pytest.approx(expected, abs=1e-12)


def test_a_new_feature_is_learned() -> None:
    """At first the labels differ in ``a``; then ``a`` goes missing and only ``c`` differs."""
    random = np.random.default_rng(0)
    model = RiverClassifier(memory=40, encoder_params={"layers": (16,)}, seed=0)
    for step in range(160):
        label = bool(random.integers(2))
        sign, noise = 2.0 * label - 1, float(random.normal() * 0.2)
        model.learn_one({"a": sign + noise} if step < 20 else {"c": sign + noise}, label)
    assert model.features == ["a", "c"]
    assert [model.predict_one({"c": value}) for value in (-1.0, 1.0)] == [False, True]


def test_the_order_of_features_means_nothing_and_missing_ones_are_zero() -> None:
    model = learned(RiverClassifier(**SMALL), stream())
    expected = model.predict_proba_one({"a": 1.0, "b": 0.0})
    nan = float("nan")
    for x in (
        {"b": 0.0, "a": 1.0},
        {"a": 1.0},
        {"a": 1, "b": None},
        {"a": np.float32(1), "b": nan},
        {"a": 1.0, "b": pd.NA},
        {"a": 1.0, "b": pd.NaT},
        {"a": 1.0, "b": np.datetime64("NaT")},
    ):
        assert model.predict_proba_one(x) == expected
    for nothing in (None, pd.NA, pd.NaT, np.datetime64("NaT")):
        missing = pd.Series([nothing, 0.0], dtype=object)
        frame = pd.DataFrame({"b": missing, "a": [1, True]}).set_axis(["x", "y"])
        found = model.predict_proba_many(frame)
        assert found.index.tolist() == ["x", "y"]
        np.testing.assert_allclose(found.to_numpy(), [list(expected.values())] * 2, rtol=1e-9)


def test_a_column_without_any_value_brings_no_feature() -> None:
    model = RiverClassifier(**SMALL)
    frame = pd.DataFrame({"a": [1.0, 2.0], "when": [pd.NaT, pd.NaT], "b": [pd.NA, pd.NA]})
    model.learn_many(frame, pd.Series(["cow", "dog"]))
    assert model.features == ["a"]


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ({"a": "red"}, "cow", "OneHotEncoder"),
        ({"a": float("inf")}, "cow", "finite"),
        ({"a": 10**400}, "cow", "finite"),
        ({"a": 10**400, "b": 1.0}, "cow", "'a' is .* finite"),
        ({"a": 10**400, "b": -(10**400)}, "cow", "'a' is .* finite"),
        ({"a": np.timedelta64(3, "s")}, "cow", "a number is needed"),
        ({"a": [1.0]}, "cow", "a number is needed"),
        ({"a": np.ones(2)}, "cow", "a number is needed"),
        ({"a": 1.0}, 3, "mixed"),
        ({"a": 1.0}, None, "NaN or None"),
        ({"a": 1.0}, pd.NA, "NaN or None"),
        ({"a": 1.0}, float("nan"), "NaN or None"),
    ],
)
def test_what_is_refused_changes_nothing(x: dict[str, Any], y: Any, message: str) -> None:
    model = learned(RiverClassifier(batch_size=2, **SMALL), stream(11))
    before = pickle.dumps(model)
    with pytest.raises(InputError, match=message):
        model.learn_one(x, y)
    with pytest.raises(InputError, match=message):
        model.learn_many(pd.DataFrame([x]), pd.Series([y], dtype=object))
    assert pickle.dumps(model) == before


def test_names_as_features_through_rivers_encoder() -> None:
    model = compose.Pipeline(preprocessing.OneHotEncoder(), RiverClassifier(**SMALL))
    animals = {"wool": "sheep", "scales": "carp", "feathers": "hen", "shell": "snail"}
    for coat, animal in list(animals.items()) * 15:  # every coat is a feature that emerges
        model.learn_one({"coat": coat}, animal)
    assert [model.predict_one({"coat": coat}) for coat in animals] == list(animals.values())


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("encoder", ["mlp", "identity"])
def test_new_features_under_every_method(method: str, encoder: str) -> None:
    """They are taken in, or refused in one line before anything was changed."""
    model = RiverClassifier(method, encoder=encoder, memory=8, seed=0)
    if encoder == "mlp":
        model = model.clone({"encoder_params": {"layers": (4,)}})
    learned(model, stream(4))
    sized = {"packnet", "protocl", "infogs", "scr"}
    if encoder == "identity" and method in sized:
        with pytest.raises(InputError, match="did not begin with"):
            model.learn_one({"a": 1.0, "c": 1.0}, "cow")
        assert model.features == ["a", "b"]
    else:
        model.learn_one({"a": 1.0, "c": 1.0}, "cow")
        assert model.classifier.n_features_in_ == 4
    model.learn_one({"a": 1.0}, "cow")


def test_a_user_module_cannot_take_new_features() -> None:
    model = RiverClassifier(encoder=nn.Linear(2, 3), seed=0)
    learned(model, stream(5))
    with pytest.raises(InputError, match="the 2 features it began with"):
        model.learn_one({"a": 1.0, "b": 1.0, "c": 1.0}, "cow")
    assert model.predict_one({"a": 1.0, "b": 1.0, "c": 1.0}) in {"ant", "cow", "dog"}


def test_copies_continue_bit_for_bit() -> None:
    model = learned(RiverClassifier(batch_size=3, **SMALL), stream(13))
    twins = [pickle.loads(pickle.dumps(model)), copy.deepcopy(model)]  # noqa: S301  (our own)
    for twin in (model, *twins):
        learned(twin, stream(8, seed=5))
    for x, _ in stream(3, seed=6):
        assert all(t.predict_proba_one(x) == model.predict_proba_one(x) for t in twins)


def test_the_classifier_underneath_takes_rows() -> None:
    model = learned(RiverClassifier(**SMALL), stream())
    x = {"b": 0.5, "a": 1.0, "unknown": 3.0}
    assert model.rows([x]).tolist() == [[1.0, 0.5]]
    assert model.classifier.explain(model.rows([x]))["distance"].shape == (1, 3)
    assert model.classifier.predict(model.rows([x]))[0] == model.predict_one(x)
    model.classifier.forget(cls="cow")
    assert set(model.predict_proba_one(x)) == {"ant", "dog"}


def test_labels_come_back_as_they_went_in() -> None:
    for labels in ([True, False], [3, -7], ["a", "bb"]):
        model = RiverClassifier(**SMALL)
        for value, label in zip((-1.0, 1.0), labels, strict=True):
            model.learn_one({"a": value}, label)
        found = model.predict_proba_one({"a": 1.0})
        assert set(found) == set(labels)
        assert {type(label) for label in found} == {type(labels[0])}
        assert type(model.predict_one({"a": 1.0})) is type(labels[0])


def test_river_knows_what_it_is() -> None:
    model = preprocessing.StandardScaler() | RiverClassifier()
    assert isinstance(model, base.Classifier)
    assert RiverClassifier()._multiclass
    assert next(iter(datasets.Phishing()))[0].keys()  # the data that River ships needs no network


@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_invalid_batch_sizes_are_refused(value: Any) -> None:
    with pytest.raises(InputError, match="batch_size is"):
        RiverClassifier(batch_size=value).learn_one({"a": 1.0}, 0)
