"""How many tensor operations a small step takes: its cost, on whatever machine.

64 features, ten classes, twenty stored of each, a small MLP: "Small problems" in
docs/performance.md. An operation on a few hundred numbers costs what it costs to ask for it.
"""

import numpy as np
import pytest
from torch.utils._python_dispatch import TorchDispatchMode  # PyTorch documents no public name

from deepccg import CCGClassifier, DeepCCGClassifier
from deepccg.estimator.river import RiverClassifier
from deepccg.gaussian import kernels

FEATURES, CLASSES, PER_CLASS = 64, 10, 20
SETTING = {"memory": CLASSES * PER_CLASS, "encoder_params": {"layers": (100, 80)}}
# Of a call: two optimiser steps for each ten rows. One in a hundred more than were counted, so that
# another release of PyTorch may split one or two.
MOST = {"kernels": {100: 3240, 1: 382}, "PyTorch": {100: 4290, 1: 486}}
MOST_OF_CLOSED_FORM = {100: 215, 1: 154}


class Operations(TorchDispatchMode):
    """Counts what reaches PyTorch's kernels, forward and backward, views included."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, _types, args=(), kwargs=None):
        self.count += 1
        return operation(*args, **(kwargs or {}))


def rows(number: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    y = (
        random.permutation(np.arange(number) % CLASSES)
        if number > 1
        else random.integers(10, size=1)
    )
    x = np.eye(CLASSES, FEATURES)[y] + random.normal(size=(number, FEATURES))
    return x.astype(np.float32), y


def operations_of(step) -> int:
    with Operations() as found:
        step()
    return found.count


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(params=MOST)
def most(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """How many at most, with compiled kernels and without."""
    with_kernels = request.param == "kernels"
    if with_kernels and kernels.unavailable_reason() is not None:
        pytest.skip(f"{kernels.unavailable_reason()}")
    monkeypatch.setattr(
        kernels, "unavailable_reason", lambda: None if with_kernels else "not wanted"
    )
    return MOST[request.param]


def filled(model: DeepCCGClassifier, random: np.random.Generator) -> DeepCCGClassifier:
    for _ in range(5):
        model.partial_fit(*rows(100, random))
    assert model.learner_.memory.size == CLASSES * PER_CLASS
    return model


@pytest.mark.parametrize("number", [100, 1])
def test_operations_of_partial_fit(number, random, most):
    model = filled(DeepCCGClassifier(random_state=0, **SETTING), random)
    for _ in range(5):
        batch = rows(number, random)
        assert operations_of(lambda batch=batch: model.partial_fit(*batch)) <= most[number]


@pytest.mark.slow
def test_operations_of_learn_one(random, most):
    model = RiverClassifier(seed=0, **SETTING)
    filled_rows = rows(500, random)
    for x, y in zip(*(part.tolist() for part in filled_rows), strict=True):
        model.learn_one(dict(enumerate(x)), y)
    for _ in range(5):
        x, y = (part.tolist() for part in rows(1, random))
        assert (
            operations_of(lambda x=x, y=y: model.learn_one(dict(enumerate(x[0])), y[0])) <= most[1]
        )


def test_operations_do_not_grow_with_the_batch_or_the_classes(random):
    """Nothing is done class by class or example by example."""
    model = filled(DeepCCGClassifier(random_state=0, **SETTING), random)
    model.batch_size = 400  # of a step
    few, many = rows(20, random), rows(400, random)
    small = operations_of(lambda: model.partial_fit(*few))
    assert operations_of(lambda: model.partial_fit(*many)) <= small + 5


@pytest.mark.parametrize(("number", "most"), MOST_OF_CLOSED_FORM.items())
def test_operations_of_the_closed_form(number, most, random):
    """A step and the prediction after it; no more in any of them, however many came before."""
    model = CCGClassifier(random_state=0).partial_fit(*rows(1000, random))
    for _ in range(3):  # asked after every step, it follows
        model.partial_fit(*rows(1, random)).predict(rows(1, random)[0])
    counts = []
    for _ in range(70):
        batch = rows(number, random)
        counts.append(
            operations_of(lambda batch=batch: model.partial_fit(*batch).predict(batch[0]))
        )
    assert sorted(counts)[60] <= most  # now and then the matrix is solved for afresh
