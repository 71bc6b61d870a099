"""scikit-learn's own suite for estimators, without an expected failure.

One check is skipped by scikit-learn itself: ``check_array_api_input`` asks for SCIPY_ARRAY_API.
"""

from collections.abc import Callable
from typing import Any

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from deepccg import CCGClassifier, DeepCCGClassifier

pytestmark = pytest.mark.filterwarnings("ignore")  # what the suite's data deserve


@parametrize_with_checks(
    [
        CCGClassifier("identity", class_prior="observed", half_lives=(50,)),
        DeepCCGClassifier(encoder="identity", epochs=1),
    ]
)
def test_scikit_learn_accepts_it(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks([CCGClassifier(), DeepCCGClassifier(), DeepCCGClassifier("er", epochs=3)])
def test_scikit_learn_accepts_its_networks(estimator: Any, check: Callable[[Any], None]) -> None:
    check(estimator)
