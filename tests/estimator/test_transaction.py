"""A call that fails, whatever the reason, leaves the classifier as it was."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.exceptions import NotFittedError
from torch import Tensor, nn

from deepccg import METHODS, DeepCCGClassifier, Diverged, InputError

Call = Callable[[DeepCCGClassifier], Any]


def refused(model: DeepCCGClassifier, call: Call, error: type[BaseException]) -> None:
    """The call raises, and nothing that is saved or predicted has changed."""
    before = pickle.dumps(model)
    with pytest.raises(error):
        call(model)
    assert pickle.dumps(model) == before


OVERFLOWS = 777.0  # as an input to ``Counting``


class Counting(nn.Module):
    """Has a buffer that every pass in training changes, as batch normalisation has."""

    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.passes += 1
        return x / (x != OVERFLOWS)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "gdumb"])  # embeds nothing
def test_a_step_that_diverges(method: str, clouds: Any) -> None:
    """Weights, memory, counters, random draws: one odd value does not end a stream."""
    x, y = clouds(("dog", "cow"), 10)
    encoder = nn.Sequential(Counting(), nn.Linear(3, 4)).double()
    model = DeepCCGClassifier(method, encoder=encoder, memory=20, random_state=0)
    model.partial_fit(x, y, task=["dog", "cow"]).partial_fit(x, y, task=["dog", "cow"])
    wild = x.copy()
    wild[0, 0] = OVERFLOWS
    new = np.where(y == "cow", "ant", y)
    refused(model, lambda m: m.partial_fit(wild, y), Diverged)
    refused(model, lambda m: m.partial_fit(wild, new, task=["ant", "dog"]), Diverged)
    assert model.partial_fit(x, y).classes_.tolist() == ["cow", "dog"]
    assert np.isfinite(model.predict_proba(x)).all()


@pytest.mark.parametrize("encoder", ["identity", "mlp"])
def test_values_whose_squares_overflow_are_refused(encoder: str, clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 10)
    model = DeepCCGClassifier(encoder=encoder, memory=10).partial_fit(x, y)
    wild = np.where(np.arange(len(x))[:, None] == 0, 1e200, x)
    refused(model, lambda m: m.partial_fit(wild, y), InputError)
    refused(model, lambda m: m.predict(wild), InputError)


class Interrupted(nn.Module):
    """The user presses Ctrl-C in the given pass."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        if bool((x == 12345).any()):
            raise KeyboardInterrupt
        out: Tensor = self.linear(x)
        return out


def test_ctrl_c_between_the_steps_of_a_call(clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 10)
    model = DeepCCGClassifier(encoder=Interrupted(), memory=10, batch_size=5, random_state=0)
    model.partial_fit(x, y)
    last = x.copy()
    last[-1] = 12345
    refused(model, lambda m: m.partial_fit(last, y), KeyboardInterrupt)


@pytest.mark.parametrize(
    "wrong",
    [{"method_params": {"lr": -1}}, {"device": "gpu"}, {"batch_size": 0}, {"memory": "many"}],
)
def test_a_fit_that_is_refused(wrong: dict[str, Any], clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 10)
    model = DeepCCGClassifier(random_state=0).fit(x, y)
    model.set_params(**wrong)
    others = np.where(y == "dog", "ant", "bee")
    refused(model, lambda m: m.fit(np.hstack([x, x]), others), InputError)
    assert model.score(x, y) == 1


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.partial_fit(np.eye(2), [None, None]),
        lambda m: m.set_params(batch_size=0).partial_fit(np.eye(2), ["a", "b"]),
        lambda m: m.set_params(method="deepcgc").fit(np.eye(2), ["a", "b"]),
    ],
)
def test_a_first_call_that_is_refused(call: Call) -> None:
    model = DeepCCGClassifier()
    with pytest.raises(InputError):
        call(model)
    with pytest.raises(NotFittedError):
        model.predict(np.eye(2))
    model.set_params(method="deepccg", batch_size=None).partial_fit(np.eye(3), ["a", "b", "a"])


def test_parameters_set_after_learning_began(clouds: Any) -> None:
    """They would change nothing: said at once, and not saved as if they had."""
    x, y = clouds(("dog", "cow"), 10)
    model = DeepCCGClassifier(memory=20, random_state=0).partial_fit(x, y)
    for late in ({"memory": 5}, {"method": "er"}, {"method_params": {"lr": 1e-9}}):
        changed = copy.deepcopy(model).set_params(**late)
        refused(changed, lambda m: m.partial_fit(x, y), InputError)
    er = DeepCCGClassifier("er", memory=20).partial_fit(x, y).set_params(method="deepccg")
    refused(er, lambda m: m.forget(index=0), InputError)
    model.set_params(batch_size=3, epochs=2, random_state=1).partial_fit(x, y)  # these may
    model.set_params(memory=5).fit(x, y)  # and so may all of them, here
    assert len(model.memory_["index"]) == 5


def test_inputs_that_the_encoder_cannot_take(clouds: Any) -> None:
    x, y = clouds(("dog", "cow"), 10)
    encoder = nn.Sequential(Counting(), nn.Linear(3, 4)).double()
    model = DeepCCGClassifier(encoder=encoder, random_state=0).fit(x, y)
    x[3] = OVERFLOWS
    with pytest.raises(InputError, match="row 3 of X are not numbers"):
        model.predict(x)
