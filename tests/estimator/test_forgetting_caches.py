"""Forgetting with ``posterior=lazy``: no embedding survives that knew what was forgotten."""

from typing import Any

import pytest
import torch

from deepccg import DeepCCGClassifier
from deepccg.learners.embedding_cache import AGE, EMBEDDING, STALE

NAMES = ("ant", "bee", "cow", "dog")


@pytest.fixture
def model(clouds: Any) -> DeepCCGClassifier:
    """Trained on two tasks, with caches of several ages."""
    own = DeepCCGClassifier(
        memory=16,
        random_state=0,
        batch_size=5,
        method_params={"posterior": "lazy", "refresh": 1, "max_age": 9, "replay": 2},
    )
    for step, names in enumerate((("dog", "cow"), ("ant", "bee"), ("dog", "ant"))):
        own.partial_fit(*clouds(names, 20, seed=step), task=names)
    assert int(own.learner_.memory[AGE].max()) > 0
    return own


@pytest.mark.parametrize("what", [{"cls": "cow"}, {"index": [0, 3]}], ids=str)
def test_no_cached_embedding_survives(
    model: DeepCCGClassifier, clouds: Any, what: dict[str, Any]
) -> None:
    before = model.learner_.memory[EMBEDDING].clone()
    x, y = clouds(("ant", "bee", "dog"), 20, seed=7)
    model.forget(**what)
    memory = model.learner_.memory
    raw = memory._columns[EMBEDDING]  # free slots too
    assert not bool(torch.isin(raw[raw != 0], before).any())
    assert bool((memory[AGE] == STALE).all())
    assert model.score(x, y) > 0.5
    model.partial_fit(*clouds(("ant", "dog"), 5, seed=8))  # an open task: every class is needed
    assert int(memory[AGE].max()) < STALE


def test_an_estimator_with_caches_comes_back_from_its_file(
    model: DeepCCGClassifier, clouds: Any, tmp_path: Any
) -> None:
    model.save(tmp_path / "model")
    other = DeepCCGClassifier.load(tmp_path / "model")
    batch = clouds(("cow", "bee"), 5, seed=3)
    for each in (model, other):
        each.partial_fit(*batch)
    for name in (EMBEDDING, AGE, "x"):
        assert torch.equal(model.learner_.memory[name], other.learner_.memory[name])
