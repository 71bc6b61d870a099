"""The closed form in River: its checks, features that come and go, and agreement with the other."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import checks, datasets
from torch import nn

from deepccg import CCGClassifier, InputError
from deepccg.estimator.river_ccg import RiverCCGClassifier


def named(check: Any) -> str:
    return str(getattr(check, "__name__", check))


@pytest.mark.slow
@pytest.mark.parametrize("check", list(checks.yield_checks(RiverCCGClassifier())), ids=named)
def test_river_accepts_it(check: Callable[[Any], None]) -> None:
    """All of ``river.checks.check_estimator``, none left out."""
    assert RiverCCGClassifier()._unit_test_skips() == set()
    check(RiverCCGClassifier(encoder_params={"features": 20}))


def segments(rows: int) -> list[tuple[dict[str, float], str]]:
    return list(datasets.ImageSegments().take(rows))


def learned(examples: Any, **params: Any) -> RiverCCGClassifier:
    model = RiverCCGClassifier(seed=0, **params)
    for x, y in examples:
        model.learn_one(x, y)
    return model


def test_it_is_the_classifier_of_scikit_learn() -> None:
    examples = segments(150)
    model, twin = learned(examples), CCGClassifier(random_state=0)
    rows, labels = model.rows([x for x, _ in examples]), [y for _, y in examples]
    for row, label in zip(rows, labels, strict=True):
        twin.partial_fit(row[None], [label])
    frame = pd.DataFrame([x for x, _ in examples])
    found = model.predict_proba_many(frame)[twin.classes_.tolist()].to_numpy()
    np.testing.assert_allclose(found, twin.predict_proba(rows), atol=1e-9)


def test_raw_features_are_learned_while_they_stream() -> None:
    right = [0, 0]
    model = RiverCCGClassifier(seed=0)
    for i, (x, y) in enumerate(segments(600)):
        right[i >= 300] += model.predict_one(x) == y
        model.learn_one(x, y)
    assert right[0] / 300 > 0.75
    assert right[1] / 300 > 0.85


@pytest.mark.parametrize("known", [40, 140])
def test_a_feature_that_comes_later_is_zero_before(known: int) -> None:
    """While the first examples wait, and after."""
    examples = segments(200)
    names = sorted(examples[0][0])
    late = names[::4]
    before = [({n: v for n, v in x.items() if n not in late}, y) for x, y in examples[:known]]
    model = learned(before)
    query = before[7][0]
    asked = model.predict_proba_one(query)
    model.learn_one(*examples[known])
    zero = learned(before)
    zero.learn_one({**dict.fromkeys(late, 0.0), **before[0][0]}, before[0][1])
    plain = learned([*before, before[0]])
    if known > 100:  # features that are fitted do not move: 0 changes nothing at all
        for name, value in zero.predict_proba_one(query).items():
            assert plain.predict_proba_one(query)[name] == pytest.approx(value, abs=1e-6)
    assert model.predict_one(query) == max(asked, key=lambda name: asked[name])
    for x, y in examples[known:]:
        model.learn_one(x, y)
    assert set(model.features) == set(names)
    hits = sum(model.predict_one(x) == y for x, y in examples[known:])
    assert hits / (200 - known) > 0.85


def test_a_feature_that_only_comes_later_is_used() -> None:
    random = np.random.default_rng(0)
    model = RiverCCGClassifier(seed=0)
    for i in range(600):
        sign = int(random.choice([-1, 1]))
        x = {"noise": float(random.normal())}
        if i >= 150:
            x["signal"] = 3 * sign + float(random.normal())
        model.learn_one(x, sign)
    assert model.predict_one({"noise": 0.0, "signal": 4.0}) == 1
    assert model.predict_one({"noise": 0.0, "signal": -4.0}) == -1


def test_a_module_has_no_room() -> None:
    model = RiverCCGClassifier(nn.Linear(1, 3), seed=0)
    model.learn_one({"a": 1.0}, 0)
    with pytest.raises(InputError, match="it cannot take more"):
        model.learn_one({"a": 1.0, "b": 2.0}, 1)
    assert model.predict_one({"a": 1.0}) == 0
