"""A classifier computes with compiled kernels where it can, and as well without."""

import pickle

import numpy as np
import pytest

from deepccg import DeepCCGClassifier
from deepccg.gaussian import kernels

needs_compiler = pytest.mark.skipif(
    kernels.unavailable_reason() is not None, reason=f"{kernels.unavailable_reason()}"
)


def batches(number: int = 15):
    random = np.random.default_rng(0)
    centres = random.normal(size=(4, 5)) * 2
    for _ in range(number):
        y = random.integers(0, 4, 20)
        yield centres[y] + random.normal(size=(20, 5)), y


def learned(**settings) -> DeepCCGClassifier:
    model = DeepCCGClassifier(memory=20, random_state=0, **settings)
    for x, y in batches():
        model.partial_fit(x, y)
    return model


@needs_compiler
def test_a_classifier_keeps_its_kernels(tmp_path):
    model = learned()
    assert model.learner_.native
    assert pickle.loads(pickle.dumps(model)).learner_.native  # noqa: S301  (just made)
    model.save(tmp_path / "model")
    assert DeepCCGClassifier.load(tmp_path / "model").learner_.native


@needs_compiler
@pytest.mark.parametrize("method", ["deepccg", "deepccg-reservoir"])
def test_learning_is_the_same_without_a_compiler(method, request):
    (x, y), *_ = batches(1)
    model = learned(method=method)
    assert model.score(x, y) > 0.8
    with_kernels = model.predict_proba(x)
    request.getfixturevalue("without_compiler")
    model = learned(method=method)
    assert not model.learner_.native
    np.testing.assert_allclose(model.predict_proba(x), with_kernels, atol=1e-6)


@pytest.mark.usefixtures("without_compiler")
def test_a_missing_compiler_gives_no_warning(recwarn):
    model = learned()
    assert not model.learner_.native
    assert not recwarn.list
