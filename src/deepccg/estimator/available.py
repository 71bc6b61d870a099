"""Which questions a classifier can be asked depends on its method."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from sklearn.utils.metaestimators import available_if

from deepccg.estimator.plan import learner_class
from deepccg.methods.deepccg import ClassConditional, DeepCCG

Method = TypeVar("Method", bound=Callable[..., Any])


def only_if(check: Callable[[Any], bool]) -> Callable[[Method], Method]:
    """scikit-learn's ``available_if``, with types."""
    return cast(Callable[[Method], Method], available_if(check))


def is_generative(estimator: Any) -> bool:
    """Whether the engine models each class by a Gaussian."""
    if not issubclass(learner_class(estimator.method), ClassConditional):
        raise AttributeError(f"method {estimator.method!r} has no class densities; deepccg has")
    return True


def can_forget(estimator: Any) -> bool:
    """Whether the engine's memory has no counter that a removed example would upset."""
    if not issubclass(learner_class(estimator.method), DeepCCG):
        raise AttributeError(f"method {estimator.method!r} cannot forget; deepccg can")
    return True
