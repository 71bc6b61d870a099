"""Each warning comes once, where it should and nowhere else, and names its cure."""

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn

from deepccg import CCGClassifier, DeepCCGClassifier, DeepCCGWarning

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(40, 40)), np.arange(40) % 2
UNIT = X / np.linalg.norm(X, axis=1, keepdims=True)
APART = X * np.where(np.arange(40) == 3, 1e5, 1.0)
OFF = {"standardize": False}

# What is warned of: parameters, inputs, labels, a word of the problem and one of the cure.
CASES: dict[str, tuple[dict[str, Any], Any, Any, str, str]] = {
    "memory": ({"memory": 20}, X, np.arange(40) % 5, "memory=20 is fewer than 5", "memory=25"),
    "rows": ({"batch_size": 400}, np.tile(X, (10, 1)), np.tile(Y, 10), "400 rows", "batch_size=10"),
    "scales": (OFF, APART, Y, "times as much", "standardize=True"),
    "scales, identity": ({"encoder": "identity"}, APART, Y, "times as much", "StandardScaler"),
    "one of twenty features is small": (
        OFF,
        X[:, :20] * np.where(np.arange(20) == 3, 1e-5, 1.0),
        Y,
        "times as much",
        "standardize=True",
    ),
    "embeddings": ({}, UNIT, Y, "unit length", "encoder='identity'"),
}
QUIET: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "enough memory": ({"memory": 25}, X, np.arange(40) % 5),
    "no memory": ({"method": "sgd", "memory": 0}, X, Y),
    "many rows in a call": ({}, np.tile(X, (10, 1)), np.tile(Y, 10)),
    "many rows, nothing to train": (
        {"batch_size": 400, "encoder": "identity"},
        np.tile(X, (10, 1)),
        np.tile(Y, 10),
    ),
    "scales, standardised": ({}, APART, Y),
    "scales of features that are fitted": ({"encoder": "fourier"}, APART, Y),
    "scales less than 10^4 apart": (OFF, X * np.where(np.arange(40) == 3, 1e3, 1.0), Y),
    "a constant feature": (OFF, X * (np.arange(40) != 3), Y),
    "one that is constant but for rounding": (OFF, np.where(np.arange(40) == 3, 0.1, X), Y),
    "embeddings as they are": ({"encoder": "identity"}, UNIT, Y),
    "mostly zeros": ({}, np.eye(40), Y),
}


def told(
    model: CCGClassifier | DeepCCGClassifier, x: Any, y: Any, way: str = "partial_fit"
) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        getattr(model, way)(x, y)
    return [str(each.message) for each in caught if each.category is DeepCCGWarning]


@pytest.mark.parametrize("case", CASES)
def test_a_warning_comes_once_and_names_the_cure(case: str) -> None:
    params, x, y, problem, cure = CASES[case]
    model = DeepCCGClassifier(random_state=0, **params)
    (text,) = told(model, x, y)
    assert problem in text
    assert cure in text
    assert "\n" not in text
    assert told(model, x, y) == []
    assert told(pickle.loads(pickle.dumps(model)), x, y) == []  # noqa: S301  (our own bytes)
    assert told(DeepCCGClassifier(epochs=1, **params), x, y, "fit") == [text]


@pytest.mark.parametrize("case", QUIET)
def test_nothing_is_said_without_need(case: str) -> None:
    params, x, y = QUIET[case]
    assert told(DeepCCGClassifier(random_state=0, **params), x, y) == []


def test_inputs_that_come_one_by_one_are_looked_at_together() -> None:
    model = DeepCCGClassifier(random_state=0)
    said = [told(model, UNIT[row : row + 1], Y[row : row + 1]) for row in range(12)]
    assert [len(each) for each in said] == [0] * 9 + [1, 0, 0]


def test_it_points_at_the_users_line_and_as_an_error_changes_nothing() -> None:
    model = DeepCCGClassifier(random_state=0).partial_fit(X, Y)
    wanted = model.predict_proba(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeepCCGWarning)
        model.memory_  # noqa: B018  (reports say nothing)
        with pytest.raises(DeepCCGWarning, match="unit length"):
            model.partial_fit(UNIT, Y)
    np.testing.assert_array_equal(model.predict_proba(X), wanted)
    with pytest.warns(DeepCCGWarning) as caught:
        DeepCCGClassifier().partial_fit(UNIT, Y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("rows", [1, 40])
def test_the_closed_form_warns_of_scales_that_nothing_makes_alike(rows: int) -> None:
    def said(x: Any, encoder: str) -> list[str]:
        model = CCGClassifier(encoder, random_state=0)
        parts = range(0, 40, rows)
        return [text for i in parts for text in told(model, x[i : i + rows], Y[i : i + rows])]

    (text,) = said(APART, "identity")
    assert "times as much" in text
    assert "encoder='auto'" in text
    assert said(APART, "auto") == []
    constant = np.where(np.arange(40) == 3, 1234.567, X)  # but for rounding
    assert said(constant, "identity") == said(UNIT, "identity") == []


@pytest.fixture(scope="module")
def activations() -> tuple[Any, Any]:
    """Of digits, class after class, by a network with ReLU whose weights decay: units die."""
    digits = load_digits()
    x, y = torch.tensor(digits.data / 8 - 1, dtype=torch.float32), torch.tensor(digits.target)
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        body = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU())
        head = nn.Linear(128, 10)
    optimiser = torch.optim.Adam([*body.parameters(), *head.parameters()], 0.003, weight_decay=0.01)
    for _ in range(20):
        for rows in torch.randperm(900, generator=generator).split(50):
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(body(x[rows])), y[rows]).backward()
            optimiser.step()
    order = np.argsort(digits.target[900:], kind="stable")
    with torch.no_grad():
        return body(x[900:]).numpy()[order], digits.target[900:][order]


@pytest.mark.parametrize("rows", [1, 10, 100])
@pytest.mark.parametrize("classifier", [CCGClassifier, DeepCCGClassifier])
def test_units_that_hardly_ever_fire_are_no_other_scale(
    classifier: Any, rows: int, activations: tuple[Any, Any]
) -> None:
    z, y = activations
    deviation = z[:100].std(axis=0)
    deviation = deviation[deviation > 0]
    assert deviation.max() > 1e4 * deviation.min()  # between two features such a ratio means units

    def said(x: Any) -> list[str]:
        model = classifier(encoder="identity", random_state=0)
        return [
            t for i in range(0, 100, rows) for t in told(model, x[i : i + rows], y[i : i + rows])
        ]

    assert said(z) == []
    (text,) = said(z * np.where(np.arange(128) == np.argmax(z.std(axis=0)), 1e5, 1.0))
    assert "times as much" in text
