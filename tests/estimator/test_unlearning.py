"""After ``forget``: no trace, and predictions as if it had never been stored."""

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg import DeepCCG, DeepCCGClassifier, InputError
from deepccg.memory import EMBEDDING

NAMES = ("ant", "bug", "cow", "dog")  # none is a number in base 16: digests are searched, too


@pytest.fixture
def model(clouds: Any) -> DeepCCGClassifier:
    """Trained on two tasks and on batches without a task; memory in float64, trained network."""
    own = DeepCCGClassifier(memory=16, random_state=0, batch_size=5)
    for step, names in enumerate((("dog", "cow"), ("ant", "bug"), ("dog", "ant"))):
        own.partial_fit(*clouds(names, 10, seed=step), task=names if step < 2 else None)
    return own.partial_fit(*clouds(("cow",), 5, seed=9), classes=["gnu"])


def never_held(model: DeepCCGClassifier, keep: Any) -> Any:
    """Probabilities of the same network with a memory given only the rows ``keep``, by label.

    The library's learner, filled by hand: nothing of the estimator takes part.
    """
    store = model.learner_.memory
    table = model.memory_
    labels = sorted(set(table["label"][keep]))
    learner = DeepCCG(model.learner_.network, memory=16, classes=range(len(labels)))
    codes = torch.tensor([labels.index(label) for label in table["label"][keep]])
    learner.memory.append(store.x[keep], codes, torch.zeros_like(codes))
    learner.class_table.seen = torch.bincount(codes, minlength=len(labels))
    return lambda x: (labels, learner.predict_proba(torch.from_numpy(x)).numpy())


def saved_bytes(model: DeepCCGClassifier, path: Path) -> bytes:
    model.save(path)
    return path.read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_class_leaves_no_trace(
    name: str, model: DeepCCGClassifier, clouds: Any, tmp_path: Path
) -> None:
    gone = model.memory_["x"][model.memory_["label"] == name]
    reference = never_held(model, np.flatnonzero(model.memory_["label"] != name))
    weights = {k: v.clone() for k, v in model.learner_.network.state_dict().items()}
    x, _ = clouds(NAMES, 5, seed=4)
    model.predict(x)  # fills the cache
    assert name.encode() in saved_bytes(model, tmp_path / "before")
    model.forget(cls=name)
    left = [other for other in (*NAMES, "gnu") if other != name]
    assert model.classes_.tolist() == left
    assert len(gone) > 0
    for kept in (saved_bytes(model, tmp_path / "after"), pickle.dumps(model)):
        assert name.encode() not in kept
        assert not any(row.tobytes() in kept for row in gone)
    raw = model.learner_.memory._columns["x"].numpy()  # free slots too
    assert not any((raw == row).all(axis=1).any() for row in gone)
    labels, expected = reference(x)
    found = model.predict_proba(x)[:, [left.index(label) for label in labels]]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert all(torch.equal(weights[k], v) for k, v in model.learner_.network.state_dict().items())


@pytest.fixture(scope="module")
def fitted() -> DeepCCGClassifier:
    """Sixteen stored of twenty-four examples."""
    x = np.random.default_rng(0).normal(size=(24, 3)) + 4 * np.eye(4, 3).repeat(6, axis=0)
    return DeepCCGClassifier(memory=16, epochs=2, random_state=0).fit(x, np.repeat(NAMES, 6))


@given(st.sets(st.integers(0, 15), min_size=1))
def test_examples_leave_no_trace(fitted: DeepCCGClassifier, rows: set[int]) -> None:
    model = copy.deepcopy(fitted)
    x = np.random.default_rng(1).normal(size=(8, 3))
    before, seen = model.memory_, dict(zip(NAMES, model.class_counts_["seen"], strict=True))
    keep = np.setdiff1d(np.arange(16), list(rows))
    reference = never_held(model, keep) if len(keep) else None
    model.forget(index=sorted(rows))
    np.testing.assert_array_equal(model.memory_["x"], before["x"][keep])
    np.testing.assert_array_equal(model.memory_["label"], before["label"][keep])
    for label, count in zip(model.classes_, model.class_counts_["seen"], strict=True):
        assert count == seen[label] - (before["label"][sorted(rows)] == label).sum()
    if reference is not None:
        labels, expected = reference(x)
        columns = [model.classes_.tolist().index(label) for label in labels]
        np.testing.assert_allclose(model.predict_proba(x)[:, columns], expected, rtol=1e-12)


def test_a_class_is_forgotten_with_its_last_seen_example() -> None:
    model = DeepCCGClassifier(random_state=0).partial_fit(np.eye(3), ["c", "a", "b"])
    model.forget(index=int(np.flatnonzero(model.memory_["label"] == "a")[0]))
    assert model.classes_.tolist() == ["b", "c"]
    assert model.predict_proba(np.eye(3)).shape == (3, 2)
    assert model.forget(cls=["b", "c"]).classes_.tolist() == []
    with pytest.raises(InputError, match="nothing was learned"):
        model.predict(np.eye(3))
    model.partial_fit(np.eye(3), [1, 2, 3])  # and other kinds of labels may come
    assert model.predict(np.eye(3)).tolist() == [1, 2, 3]


def test_learning_continues_and_the_class_may_return(model: DeepCCGClassifier, clouds: Any) -> None:
    model.forget(cls=["cow", "bug"])
    assert model.classes_.tolist() == ["ant", "dog", "gnu"]
    for step in range(10):
        model.partial_fit(*clouds(("cow", "ant"), 5, seed=step), task=["cow", "ant"])
        model.partial_fit(*clouds(("bug", "dog"), 5, seed=step))
    x, y = clouds(NAMES, 10, seed=11)
    assert model.score(x, y) > 0.95
    assert model.class_counts_["seen"].tolist()[1:3] == [50, 50]


@pytest.mark.parametrize(
    "arguments",
    [{}, {"cls": "ant", "index": 1}, {"cls": "eel"}, {"index": 99}, {"index": -1}, {"index": 0.5}],
)
def test_what_cannot_be_forgotten_is_refused(
    arguments: dict[str, Any], model: DeepCCGClassifier
) -> None:
    before = model.memory_["x"]
    with pytest.raises(InputError, match=r"say what|never seen|index is"):
        model.forget(**arguments)
    np.testing.assert_array_equal(model.memory_["x"], before)
    assert model.classes_.tolist() == [*NAMES, "gnu"]


@pytest.fixture
def model_with_cache(clouds: Any) -> DeepCCGClassifier:
    """Trained on two tasks, with caches."""
    own = DeepCCGClassifier(
        memory=16,
        random_state=0,
        batch_size=5,
        method_params={"posterior": "sampled", "replay": 2},
    )
    for step, names in enumerate((("dog", "cow"), ("ant", "bug"), ("dog", "ant"))):
        own.partial_fit(*clouds(names, 20, seed=step), task=names)
    return own


@pytest.mark.parametrize("what", [{"cls": "cow"}, {"index": [0, 3]}], ids=str)
def test_no_cached_embedding_survives(
    model_with_cache: DeepCCGClassifier, clouds: Any, what: dict[str, Any]
) -> None:
    model = model_with_cache
    before = model.learner_.memory[EMBEDDING].clone()
    x, y = clouds(("ant", "bug", "dog"), 20, seed=7)
    model.forget(**what)
    memory = model.learner_.memory
    raw = memory._columns[EMBEDDING]  # free slots too
    assert not bool(torch.isin(raw[raw != 0], before).any())
    assert bool((memory[EMBEDDING] == 0).all())
    assert model.score(x, y) > 0.5
    model.partial_fit(*clouds(("ant", "dog"), 5, seed=8))  # an open task: every class is needed
    assert bool((memory[EMBEDDING] != 0).any(dim=1).all())


def test_an_estimator_with_caches_comes_back_from_its_file(
    model_with_cache: DeepCCGClassifier, clouds: Any, tmp_path: Path
) -> None:
    model = model_with_cache
    model.save(tmp_path / "model")
    other = DeepCCGClassifier.load(tmp_path / "model")
    batch = clouds(("cow", "bug"), 5, seed=3)
    for each in (model, other):
        each.partial_fit(*batch)
    for name in (EMBEDDING, "x"):
        assert torch.equal(model.learner_.memory[name], other.learner_.memory[name])
