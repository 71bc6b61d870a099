"""What the classifier reports about itself, against SciPy and brute force."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cdist
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn.covariance import LedoitWolf
from sklearn.exceptions import NotFittedError
from torch.distributions import MultivariateNormal, kl_divergence

from deepccg import DeepCCGClassifier, InputError

NAMES = ("ant", "cow", "dog")


@pytest.fixture
def model(clouds: Any) -> DeepCCGClassifier:
    """Points as their own embedding, four stored of each class, scale 2."""
    own = DeepCCGClassifier(
        encoder="identity", memory=12, random_state=0, method_params={"embedding_scale": 2.0}
    )
    return own.partial_fit(*clouds(NAMES, 10), classes=[*NAMES, "eel"]).forget(cls="eel")


def stored(model: DeepCCGClassifier, name: str) -> Any:
    table = model.memory_
    return table["x"][table["label"] == name]


def minus_log_mixture(model: DeepCCGClassifier, x: Any, covariances: list[Any]) -> Any:
    each = [
        multivariate_normal(stored(model, name).mean(axis=0), covariance).logpdf(x)
        for name, covariance in zip(NAMES, covariances, strict=True)
    ]
    return -(logsumexp(each, axis=0) - np.log(3))


@pytest.mark.parametrize("variance", ["shared", "per-class"])
def test_ood_score_is_the_predictive_density(variance: str, clouds: Any) -> None:
    """Under the stored examples' covariance within classes, shrunk by scikit-learn's estimate."""
    model = DeepCCGClassifier(
        encoder="identity", memory=12, random_state=0, method_params={"variance": variance}
    )
    x, y = clouds(NAMES, 10)
    model.partial_fit(x * [1.0, 10.0, 0.1], y)
    model.forget(index=0)  # so that the classes do not all have four
    unknown = clouds((*NAMES, "bee"), 5, seed=1)[0] * [1.0, 10.0, 0.1]
    deviation = np.concatenate(
        [stored(model, name) - stored(model, name).mean(axis=0) for name in NAMES]
    )
    n = np.array([len(stored(model, name)) for name in NAMES])
    assert len(set(n)) == 2
    within = LedoitWolf(assume_centered=True).fit(deviation).covariance_ * sum(n) / (sum(n) - 3)
    spread = 1 + (1 / n if variance == "per-class" else np.full(3, 1 / n.mean()))
    expected = minus_log_mixture(model, unknown, [within * each for each in spread])
    np.testing.assert_allclose(model.ood_score(unknown), expected, rtol=1e-9)


def test_ood_score_of_single_examples_is_the_models_own_density(clouds: Any) -> None:
    """One stored example of each class gives no covariance: the model's is 1 / scale^2."""
    model = DeepCCGClassifier(
        encoder="identity", memory=3, random_state=0, method_params={"embedding_scale": 2.0}
    ).partial_fit(*clouds(NAMES, 10), classes=NAMES)
    x, _ = clouds((*NAMES, "bee"), 5, seed=1)
    expected = minus_log_mixture(model, x, [2 / 2.0**2 * np.eye(3)] * 3)
    np.testing.assert_allclose(model.ood_score(x), expected, rtol=1e-10)


@pytest.mark.parametrize("memory", [2, 3, 4, 12])
def test_ood_score_of_few_or_equal_examples_is_finite(memory: int, clouds: Any) -> None:
    x, y = clouds(NAMES, 10)
    equal = np.stack([[NAMES.index(name)] * 3 for name in y]).astype(float)
    for own in (x, equal, x * 1e100, x * 1e-100):
        model = DeepCCGClassifier(encoder="identity", memory=memory, random_state=0)
        model.partial_fit(own[:10], y[:10])
        assert np.isfinite(model.ood_score(x)).all()
        model.partial_fit(own, y)
        assert np.isfinite(model.ood_score(x)).all()


def test_directions_without_variation_reveal_unknown_inputs() -> None:
    """Wide along one axis, flat along the other: leaving the line is unusual."""
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 2)) * [5.0, 0.1]
    y = np.repeat([0, 1], 100)
    model = DeepCCGClassifier(encoder="identity", memory=60, random_state=0)
    model.partial_fit(x + 40 * y[:, None], y)
    beside, along = [[0.0, 2.0]], [[6.0, 0.0]]  # the second is farther from every mean
    assert model.ood_score(beside) > model.ood_score(along)


def test_unknown_inputs_score_higher(clouds: Any) -> None:
    model = DeepCCGClassifier(random_state=0).fit(*clouds(NAMES, 20))
    known, unknown = clouds(NAMES, 20, seed=1)[0], clouds(("bee",), 40, seed=1)[0]
    assert np.median(model.ood_score(unknown)) > np.quantile(model.ood_score(known), 0.95)


def test_class_counts(model: DeepCCGClassifier) -> None:
    table = model.class_counts_
    assert table["label"].tolist() == list(NAMES)
    assert table["seen"].tolist() == [10, 10, 10]
    assert table["stored"].tolist() == [len(stored(model, name)) for name in NAMES]


def test_the_former_name_of_class_counts_warns(model: DeepCCGClassifier) -> None:
    with pytest.warns(DeprecationWarning, match="class_counts_"):
        table = model.evidence_
    assert table["seen"].tolist() == model.class_counts_["seen"].tolist()


def test_memory_holds_examples_of_the_data(model: DeepCCGClassifier, clouds: Any) -> None:
    x, y = clouds(NAMES, 10)
    table = model.memory_
    assert {len(column) for column in table.values()} == {model.learner_.memory.size}
    for row, label in zip(table["x"], table["label"], strict=True):
        assert y[(x == row).all(axis=1)].tolist() == [label]


def test_contribution_is_the_divergence_without_the_example(model: DeepCCGClassifier) -> None:
    table = model.memory_
    for index, label in enumerate(table["label"]):
        own = np.flatnonzero(table["label"] == label)
        z = 2.0 * torch.from_numpy(table["x"])
        with_all, without = (
            MultivariateNormal(z[part].mean(dim=0), torch.eye(z.shape[1]).to(z) / len(part))
            for part in (own, own[own != index])
        )
        expected = float(kl_divergence(with_all, without))
        assert table["contribution"][index] == pytest.approx(expected, rel=1e-10)


def test_the_only_example_of_a_class_contributes_everything() -> None:
    model = DeepCCGClassifier().partial_fit(np.eye(2), ["a", "b"])
    assert np.isinf(model.memory_["contribution"]).all()


def test_explanations_by_brute_force(model: DeepCCGClassifier, clouds: Any) -> None:
    x, _ = clouds((*NAMES, "bee"), 3, seed=2)
    table, found = model.memory_, model.explain(x, neighbours=2)
    means = np.stack([stored(model, name).mean(axis=0) for name in NAMES])
    np.testing.assert_allclose(found["distance"], 2 * cdist(x, means), rtol=1e-10)
    apart = 2 * cdist(x, table["x"])
    order = np.argsort(apart, axis=1)[:, :2]
    np.testing.assert_array_equal(found["neighbour"], order)
    np.testing.assert_array_equal(found["neighbour_label"], table["label"][order])
    np.testing.assert_allclose(
        found["neighbour_distance"], np.take_along_axis(apart, order, axis=1), rtol=1e-10
    )
    nearest_mean = np.array(NAMES)[found["distance"].argmin(axis=1)]
    np.testing.assert_array_equal(model.predict(x), nearest_mean)  # variance is shared
    with pytest.raises(InputError, match="neighbours is 0"):
        model.explain(x, neighbours=0)


def test_classes_without_a_stored_example_have_no_distance() -> None:
    model = DeepCCGClassifier().partial_fit(np.eye(2), ["b", "c"], classes=["a", "b", "c"])
    assert np.isnan(model.explain(np.eye(2))["distance"][:, 0]).all()
    assert np.isfinite(model.explain(np.eye(2))["distance"][:, 1:]).all()


def test_other_methods_have_a_memory_and_no_densities(clouds: Any) -> None:
    x, y = clouds(("cow", "dog"), 5)
    model = DeepCCGClassifier("er", memory=6, epochs=1).fit(x, y)
    assert set(model.memory_) == {"index", "label", "x"}
    assert model.class_counts_["stored"].sum() == 6
    for name in ("ood_score", "explain", "forget"):
        assert not hasattr(model, name)
        assert hasattr(DeepCCGClassifier(), name)
    empty = DeepCCGClassifier(memory=0).fit(x, y)
    assert len(empty.memory_["contribution"]) == 0
    with pytest.raises(InputError, match="memory is empty"):
        empty.ood_score(x)


@pytest.mark.parametrize("name", ["memory_", "class_counts_"])
def test_unfitted_classifiers_are_refused(name: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(DeepCCGClassifier(), name)
