"""Further input features for a fitted classifier, which changes no prediction without them."""

import dataclasses
from typing import Any

from torch import Tensor
from torch.nn.functional import pad

from deepccg.core import InputError, State, StateMismatch

# The weights that read an input: of an MLP, and of a head on the inputs themselves.
_READERS = {"auto": "layers.0.weight", "mlp": "layers.0.weight", "identity": "head.weight"}


def widen(estimator: Any, width: int) -> None:
    """Give a fitted ``DeepCCGClassifier`` on vectors ``width`` inputs.

    The new ones are 0 in every stored example, and so are the weights that read them: nothing is
    predicted otherwise until something was learned of them.
    """
    plan = estimator._plan
    if plan.encoder not in _READERS:
        raise InputError(
            f"your encoder takes the {plan.shape[0]} features it began with: it cannot take more"
        )
    wider = dataclasses.replace(plan, shape=(width,))
    state = _widened(estimator.learner_.state_dict(), _READERS[plan.encoder], width)
    learner = wider.build()
    try:
        learner.load_state_dict(state)
    except StateMismatch as error:
        raise InputError(
            f"{plan.method} on {plan.encoder!r} cannot take features that it did not begin with: "
            f"{error}"
        ) from None
    estimator._plan, estimator.learner_ = wider, learner
    estimator.n_features_in_, estimator.input_shape_ = width, (width,)
    vars(estimator).pop("_watch", None)  # the examples that it follows are too narrow


def _widened(state: State, reader: str, width: int) -> State:
    tensors = {
        name: _padded(value, width) if name == "memory.x" or name.endswith(reader) else value
        for name, value in state.tensors.items()
    }
    inputs = {**state.meta["parts"]["inputs"], "shape": [width]}
    return State(tensors, {**state.meta, "parts": {**state.meta["parts"], "inputs": inputs}})


def _padded(value: Tensor, width: int) -> Tensor:
    return pad(value, (0, width - value.shape[-1])) if value.ndim == 2 else value
