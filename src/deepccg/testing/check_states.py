"""Checks of saved states."""

import warnings
from functools import partial

import torch

from deepccg.core import State, StateMismatch
from deepccg.testing.assertions import require, require_refused, require_same
from deepccg.testing.toy import (
    TASKS,
    Subject,
    predictions_of,
    saved_state,
    toy_batch,
    toy_stream,
    toy_twins,
)


def resumes_bit_for_bit(subject: Subject) -> None:
    """Save, load in a fresh object, continue: as if never stopped."""
    for stop in (0, 1, 6):
        whole = subject.trained(toy_stream(steps=10)[:stop])
        resumed = subject.learner(seed=99)
        resumed.load_state_dict(saved_state(whole))
        require(resumed.classes == whole.classes, "the classes differ after loading")
        for batch, same_batch in toy_twins(steps=10)[stop:]:
            same = whole.learn(batch) == resumed.learn(same_batch)
            require(same, "a step after loading differs")
        require_same(whole.state_dict(), resumed.state_dict(), f"stopped after {stop} steps")
        same = all(map(torch.equal, predictions_of(whole), predictions_of(resumed)))
        require(same, f"predictions differ, stopped after {stop} steps")


def states_are_snapshots(subject: Subject) -> None:
    """A state is plain tensors and JSON, and shares no memory with the learner."""
    learner = subject.trained(toy_stream())
    state = learner.state_dict()
    before = saved_state(learner)
    require_same(before, state, "through safetensors and JSON")
    learner.learn(toy_batch(0, TASKS[0]))
    require_same(before, state, "in a state taken before a step")
    learner.load_state_dict(state)
    for tensor in state.tensors.values():
        tensor.zero_()
    require_same(before, learner.state_dict(), "after the loaded state was overwritten")


def refuses_foreign_states(subject: Subject) -> None:
    """A state of another method or shape: StateMismatch, and nothing changes."""
    wider = subject.learner(layers=(16, 9))
    deeper = subject.learner(layers=(16, 16, 8))
    for other in (wider, deeper):
        for batch in toy_stream():
            other.learn(batch)
    foreign = {
        "wider embedding": saved_state(wider),
        "deeper network": saved_state(deeper),
        "empty state": State({}, {}),
        "unknown method": State({"weight": torch.zeros(3)}, {"method": "unknown"}),
    }
    learner = subject.trained(toy_stream(steps=3))
    before = saved_state(learner)
    for what, state in foreign.items():
        require_refused((StateMismatch,), partial(learner.load_state_dict, state), what)
        require_same(before, learner.state_dict(), f"after a refused state ({what})")


def refuses_truncated_states(subject: Subject) -> None:
    """A state with a tensor missing or cut short: StateMismatch, and nothing changes."""
    learner, whole = (
        subject.trained(toy_stream(steps=3), seed=1),
        saved_state(subject.trained(toy_stream())),
    )
    before = saved_state(learner)
    for name, tensor in whole.tensors.items():
        rest = {key: value for key, value in whole.tensors.items() if key != name}
        damaged = {f"without {name}": rest}
        if tensor.ndim > 0 and len(tensor) > 0:
            damaged[f"with {name} cut short"] = {**rest, name: tensor[:-1].clone()}
        for what, tensors in damaged.items():
            load = partial(learner.load_state_dict, State(tensors, whole.meta))
            require_refused((StateMismatch,), load, f"a state {what}")
            require_same(before, learner.state_dict(), f"after a refused state {what}")
    for name in whole.meta:
        rest_meta = {key: value for key, value in whole.meta.items() if key != name}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is odd may be loaded with a warning
                learner.load_state_dict(State(whole.tensors, rest_meta))
        except StateMismatch:
            require_same(before, learner.state_dict(), f"after a refused state without {name}")
        else:  # the entry was for information only
            require_same(whole, learner.state_dict(), f"after a state without {name}")
            learner.load_state_dict(before)
