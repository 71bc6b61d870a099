"""Checks of saved states and of randomness: the same again, bit for bit.

The latter use the global generators on purpose: no learner may depend on them.
"""

import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from deepccg.core import State, StateMismatch
from deepccg.testing.toy import (
    TASKS,
    Subject,
    predictions_of,
    require,
    require_refused,
    require_same,
    saved_state,
    toy_batch,
    toy_network,
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
    foreign = {
        "wider embedding": saved_state(subject.trained(toy_stream(), toy_network((16, 9)))),
        "deeper network": saved_state(subject.trained(toy_stream(), toy_network((16, 16, 8)))),
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
    whole = saved_state(subject.trained(toy_stream()))
    learner = subject.trained(toy_stream(steps=3), seed=1)
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


def same_seed_same_trajectory(subject: Subject) -> None:
    """Two learners with the same seed agree bit for bit, step by step."""
    one, two = subject.learner(seed=3), subject.learner(seed=3)
    for batch, same_batch in toy_twins(steps=8):
        same = one.learn(batch) == two.learn(same_batch)
        require(same, "two learners report different steps")
        require_same(one.state_dict(), two.state_dict(), "between two learners of one seed")
    require(all(map(torch.equal, predictions_of(one), predictions_of(two))), "predictions differ")


def global_generators_do_not_matter(subject: Subject) -> None:
    """Disturbing the global generators of torch, numpy and random changes nothing."""
    expected = subject.trained(toy_stream(steps=8))
    with restored_generators():
        seed_global_generators(1)
        disturbed = subject.learner()
        for step, batch in enumerate(toy_stream(steps=8)):
            seed_global_generators(step)
            disturbed.learn(batch)
        same = all(map(torch.equal, predictions_of(expected), predictions_of(disturbed)))
    require(same, "predictions depend on the global generators")
    require_same(expected.state_dict(), disturbed.state_dict(), "with other global generators")


def global_generators_are_not_touched(subject: Subject) -> None:
    """Making, teaching, asking and saving a learner draws nothing from the global generators."""
    with restored_generators():
        seed_global_generators(0)
        before = global_generator_states()
        learner = subject.trained(toy_stream())
        predictions_of(learner)
        subject.learner(seed=1).load_state_dict(saved_state(learner))
        drawn = [name for name, state in global_generator_states().items() if state != before[name]]
    require(not drawn, f"drew from the global generator of {drawn}")


def seed_global_generators(seed: int) -> None:
    """Seed the global generators of torch, numpy and random."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def global_generator_states() -> dict[str, str]:
    """Return the state of each global generator."""
    return {
        "torch": str(torch.get_rng_state().tolist()),
        "numpy": str([str(part) for part in np.random.get_state()]),  # noqa: NPY002
        "random": str(random.getstate()),
    }


@contextmanager
def restored_generators() -> Iterator[None]:
    """Restore the global generators afterwards."""
    states = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        random.setstate(states[2])
