"""Room for further inputs in a fitted classifier on vectors, which changes no prediction."""

import dataclasses
from typing import TYPE_CHECKING, cast

import torch
from torch.nn.functional import pad

from deepccg.core import Batch, InputError, State, StateMismatch
from deepccg.estimator.encoders import CHOSEN, ROBUST, WAVED
from deepccg.estimator.spec import LearnerSpec
from deepccg.gaussian import PackedSymmetric
from deepccg.methods.ccg import CCG
from deepccg.methods.ccg_changes import WEIGHT

if TYPE_CHECKING:
    from deepccg.estimator.base import StreamClassifier

# Of each named encoder, the weight that reads the inputs; on "identity" that is a head's.
_FIRST_WEIGHT = {"auto": "layers.0.weight", "mlp": "layers.0.weight", "identity": "head.weight"}
# Of ``Standardized``, and of copies of it: the new inputs were always 0.
_STATISTICS = ("network.mean", "network.scatter")
# What the closed form knows of each input: it was 0 in all examples, so these are.
_ZEROS = ("network.mean", "network.centre", "statistics.mean")


def add_inputs(classifier: "StreamClassifier", width: int) -> None:
    """Give a fitted classifier on vectors ``width`` inputs.

    The new ones are 0 in every example before, and so are the weights that read them: no
    prediction changes before something is learned of them.
    """
    spec, learner = classifier._spec, classifier.learner_
    wide = dataclasses.replace(spec, shape=(width,))
    closed_form = isinstance(learner, CCG) and spec.encoder in (*CHOSEN, "identity")
    first_weight = _FIRST_WEIGHT.get(spec.encoder) if isinstance(spec.encoder, str) else None
    if not closed_form and first_weight is None:
        raise InputError(
            f"your encoder takes the {spec.shape[0]} features it began with: it cannot take more"
        )
    try:
        if closed_form:
            _widen_closed_form(classifier, wide)
        else:
            classifier._rebuild(wide, _widened(learner.state_dict(), str(first_weight), width))
    except StateMismatch as error:
        raise InputError(
            f"{spec.method} on {spec.encoder!r} cannot take features that it did not begin with: "
            f"{error}"
        ) from None
    classifier.n_features_in_, classifier.input_shape_ = width, (width,)


def _widened(state: State, first_weight: str, width: int) -> State:
    """Return a state with zeros for the inputs that are new."""
    tensors = {
        name: pad(value, (0, width - value.shape[-1]))
        if name.endswith(_STATISTICS)
        or (value.ndim == 2 and (name == "memory.x" or name.endswith(first_weight)))
        else value
        for name, value in state.tensors.items()
    }
    return _of_width(State(tensors, state.meta), width)


def _widen_closed_form(classifier: "StreamClassifier", wide: LearnerSpec) -> None:
    """Put inputs behind the others; examples that wait have no features yet, and wait again."""
    learner = cast(CCG, classifier.learner_)
    (width,) = wide.shape
    if learner.ready:
        if wide.encoder == ROBUST:
            params = {WAVED: classifier._spec.shape[0], **wide.encoder_params}
            wide = dataclasses.replace(wide, encoder_params=params)
        classifier._rebuild(wide, _widened_statistics(learner.state_dict(), width))
        return
    waiting = learner.memory
    classifier._rebuild(wide)
    wider = cast(CCG, classifier.learner_)
    wider.class_table.declare(learner.classes)
    if waiting.size:
        x = pad(waiting.x, (0, width - waiting.x.shape[1]))
        wider.learn(Batch(x, torch.tensor(learner.classes)[waiting.y]), waiting[WEIGHT])


def _widened_statistics(state: State, width: int) -> State:
    """Return a state of the closed form with inputs that were 0 so far, behind the others."""
    tensors, more = dict(state.tensors), width - state.meta["parts"]["inputs"]["shape"][0]
    for name in _ZEROS:
        if name in tensors:
            tensors[name] = pad(tensors[name], (0, more))
    if "network.deviation" in tensors:  # they are not known
        tensors["network.deviation"] = pad(tensors["network.deviation"], (0, more), value=1.0)
    for name in ("statistics.scatter", "statistics.shares"):
        if name in tensors and tensors[name].ndim == 2:
            dense = [PackedSymmetric(each).dense() for each in tensors[name]]
            wide = [PackedSymmetric.of(pad(each, (0, more, 0, more))).values for each in dense]
            tensors[name] = torch.stack(wide)
    return _of_width(State(tensors, state.meta), width)


def _of_width(state: State, width: int) -> State:
    inputs = {**state.meta["parts"]["inputs"], "shape": [width]}
    return State(state.tensors, {**state.meta, "parts": {**state.meta["parts"], "inputs": inputs}})
