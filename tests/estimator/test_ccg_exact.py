"""Weights, merging and unlearning: statistics add, so each is exact but for rounding."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine

from deepccg import CCGClassifier, DeepCCGClassifier, InputError

X, Y = load_wine(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(X))
X, Y = X[ORDER], Y[ORDER]


def same(one: CCGClassifier, other: CCGClassifier) -> None:
    assert one.classes_.tolist() == other.classes_.tolist()
    np.testing.assert_allclose(
        one.predict_log_proba(X).clip(min=-30), other.predict_log_proba(X).clip(min=-30), atol=1e-6
    )


def built(**params: Any) -> CCGClassifier:
    return CCGClassifier(random_state=0, **params)


def fitted() -> CCGClassifier:
    """Features of some rows, and nothing learned."""
    return built().fit(X, Y).empty_copy()


# Weights


@pytest.mark.parametrize("half_lives", [None, (40,)])
@pytest.mark.parametrize("calls", [1, 6])
def test_weights_are_repetitions(calls: int, half_lives: tuple[int, ...] | None) -> None:
    """Also while examples wait: with 2 calls or more, the first has fewer than a hundred."""
    weight = np.random.default_rng(1).integers(0, 4, len(X))
    weighted, repeated = built(half_lives=half_lives), built(half_lives=half_lives)
    for rows in np.array_split(np.arange(len(X)), calls):
        weighted.partial_fit(X[rows], Y[rows], sample_weight=weight[rows])
        again = np.repeat(rows, weight[rows])
        repeated.partial_fit(X[again], Y[again])
        same(weighted, repeated)


def test_fractions_have_their_share() -> None:
    """Halves of all rows, learned twice."""
    halves, whole = fitted(), fitted()
    for _ in range(2):
        halves.partial_fit(X, Y, sample_weight=np.full(len(X), 0.5))
    same(halves, whole.partial_fit(X, Y))
    ten = fitted().partial_fit(X, Y, sample_weight=np.full(len(X), 10.0))
    assert np.abs(ten.predict_log_proba(X) - whole.predict_log_proba(X)).max() > 0.1


def test_without_weight_an_example_has_not_come() -> None:
    weight = (Y != 1).astype(float)
    model = built().fit(X, Y, sample_weight=weight)
    assert model.classes_.tolist() == [0, 2]
    same(model, built().fit(X[Y != 1], Y[Y != 1]))


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (np.full(len(X), -1.0), "weights are 0 or more"),
        (np.zeros(len(X)), "0 everywhere|non-zero"),
        (np.full(len(X), np.nan), "NaN"),
        (np.ones(3), "sample_weight"),
    ],
)
def test_weights_that_cannot_be_are_refused(weight: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        built().fit(X, Y, sample_weight=weight)


# Merging


def test_merged_parts_are_the_whole() -> None:
    """Labels that came in another order, and a class that only one part has."""
    names = np.array(["c", "a", "b"])[Y]
    whole, one, other = fitted(), fitted(), fitted()
    part = (np.arange(len(X)) % 2 == 0) & (Y != 2)
    one.partial_fit(X[part], names[part])
    other.partial_fit(X[~part][::-1], names[~part][::-1], sample_weight=np.full((~part).sum(), 1.5))
    whole.partial_fit(X, names, sample_weight=np.where(part, 1.0, 1.5))
    before = other.predict_proba(X)
    same(one.merge(other), whole)
    assert np.array_equal(other.predict_proba(X), before)
    one.partial_fit(X[:5], names[:5])


def test_parts_that_wait_are_merged() -> None:
    one, other = built().partial_fit(X[:60], Y[:60]), built().partial_fit(X[60:90], Y[60:90])
    same(one.merge(other), built().partial_fit(X[:90], Y[:90]))
    same(one.merge(built().partial_fit(X[90:], Y[90:])), built().partial_fit(X, Y))


def test_other_features_do_not_merge() -> None:
    one = built().fit(X, Y)
    for other in (built().fit(X[:120], Y[:120]), built(half_lives=(9,)).fit(X, Y), one):
        before = one.predict_proba(X)
        with pytest.raises(InputError, match="merge"):
            one.merge(other)
        assert np.array_equal(one.predict_proba(X), before)
    with pytest.raises(InputError, match="merge takes another CCGClassifier"):
        one.merge(DeepCCGClassifier().fit(X, Y))
    with pytest.raises(InputError, match="not fitted yet"):
        built().partial_fit(X[:9], Y[:9]).empty_copy()


# Unlearning


@pytest.mark.parametrize("weighted", [True, False])
def test_unlearned_is_never_learned(weighted: bool) -> None:
    weight = np.random.default_rng(2).uniform(0.1, 3, len(X)) if weighted else np.ones(len(X))
    given = {"sample_weight": weight} if weighted else {}
    model, never = fitted().partial_fit(X, Y, **given), fitted()
    out = (Y == 1) | (np.arange(len(X)) % 5 == 0)
    never.partial_fit(X[~out], Y[~out], sample_weight=weight[~out])
    model.unlearn(X[out], Y[out], **({"sample_weight": weight[out]} if weighted else {}))
    same(model, never)
    assert model.classes_.tolist() == [0, 2]
    model.partial_fit(X[out], Y[out], **({"sample_weight": weight[out]} if weighted else {}))
    same(model, fitted().partial_fit(X, Y, **given))


def test_what_waits_is_unlearned() -> None:
    model = built().partial_fit(X[:60], Y[:60]).unlearn(X[10:30], Y[10:30])
    left = np.r_[0:10, 30:60]
    same(model, built().partial_fit(X[left], Y[left]))
    with pytest.raises(InputError, match="none of the 40 that wait"):
        model.unlearn(X[10:11], Y[10:11])
    same(model, built().partial_fit(X[left], Y[left]))


def test_a_class_taken_out_while_it_waits_is_gone() -> None:
    few = Y[:60] == 1
    model = built().partial_fit(X[:60], Y[:60]).unlearn(X[:60][few], Y[:60][few])
    same(model, built().partial_fit(X[:60][~few], Y[:60][~few]))


def test_what_cannot_have_been_learned_is_refused() -> None:
    model = built().fit(X[:150], Y[:150], sample_weight=np.full(150, 0.5))
    before = model.predict_proba(X)
    own = Y[:150] == 0
    for x, y, weight, match in [
        (X[:1], [7], None, "never seen"),
        (np.tile(X[:1], (200, 1)), np.full(200, Y[0]), None, "fewer examples"),
        (X[:150][own], Y[:150][own], np.full(own.sum(), 0.25), "not those that were learned"),
        (X[:150][own][1:], Y[:150][own][1:], np.full(own.sum() - 1, 2.0), "not those that were"),
    ]:
        with pytest.raises(InputError, match=match):
            model.unlearn(x, y, sample_weight=weight)
        np.testing.assert_allclose(model.predict_proba(X), before, atol=1e-9)
    with pytest.raises(InputError, match="half_lives"):
        built(half_lives=(9,)).fit(X, Y).unlearn(X[:1], Y[:1])


# Forgetting


def forgettable(left_out: int | None = None) -> CCGClassifier:
    """All rows but of one class, in three calls; then the first again, one by one, with a look."""
    model = built(forgettable=True).fit(X, Y).empty_copy()
    for part in np.array_split(np.flatnonzero(left_out != Y), 3):
        model.partial_fit(X[part], Y[part])
    for row in np.flatnonzero(left_out != Y[:120]):
        model.partial_fit(X[row : row + 1], Y[row : row + 1]).predict(X[:1])
    return model


def scatter_of(model: CCGClassifier) -> Any:
    return model.learner_.statistics.members[0].statistics.scatter.dense().numpy()


@pytest.mark.parametrize("copied", [False, True])
def test_a_forgotten_class_has_never_come(copied: bool, tmp_path: Any) -> None:
    model, never = forgettable(), forgettable(left_out=1)
    whole = scatter_of(model)
    if copied:
        model.save(tmp_path / "model")
        model = CCGClassifier.load(tmp_path / "model")
    same(model.forget(1), never)
    np.testing.assert_allclose(scatter_of(model), scatter_of(never), atol=1e-9)
    assert np.abs(whole - scatter_of(never)).max() > 1
    model.partial_fit(X[Y == 1], Y[Y == 1])
    assert model.classes_.tolist() == [0, 1, 2]
    assert model.forget([0, 1, 2]).classes_.tolist() == []
    same(model.partial_fit(X, Y), built(forgettable=True).fit(X, Y).empty_copy().partial_fit(X, Y))


def test_forgetting_goes_with_merging_and_unlearning() -> None:
    empty = built(forgettable=True).fit(X, Y).empty_copy()
    one, other = empty.empty_copy(), empty.empty_copy()
    one.partial_fit(X[::2], Y[::2])
    other.partial_fit(X[1::2], Y[1::2], sample_weight=np.full(len(X[1::2]), 2.0))
    out = np.flatnonzero(Y[::2] == 2)[:5]
    one.merge(other).unlearn(X[::2][out], Y[::2][out]).forget(2)
    left = Y != 2
    weight = np.where(np.arange(len(X)) % 2, 2.0, 1.0)
    same(one, empty.empty_copy().partial_fit(X[left], Y[left], sample_weight=weight[left]))


def test_a_class_that_waits_is_forgotten() -> None:
    left = Y[:60] != 1
    same(
        built().partial_fit(X[:60], Y[:60]).forget(1),
        built().partial_fit(X[:60][left], Y[:60][left]),
    )


def test_forgetting_is_refused_where_it_cannot_be_exact() -> None:
    model = built().fit(X, Y)
    before = model.predict_proba(X)
    with pytest.raises(
        InputError, match=r"forgettable=True\), or give the class's examples to unlearn"
    ):
        model.forget(1)
    with pytest.raises(InputError, match="never seen"):
        model.forget(5)
    with pytest.raises(InputError, match="start again with fit"):
        model.set_params(forgettable=True).partial_fit(X, Y)
    assert np.array_equal(model.predict_proba(X), before)
    with pytest.raises(InputError, match="not both"):
        built(forgettable=True, half_lives=(9,)).fit(X, Y)
