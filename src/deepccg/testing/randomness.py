"""What is promised of randomness.

The global generators are the subject here, so they are used on purpose.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from deepccg.testing.promises import require, require_same
from deepccg.testing.toy import Subject, predictions_of, saved_state, toy_stream, toy_twins


def same_seed_same_trajectory(subject: Subject) -> None:
    """Two learners with the same seed agree bit for bit, step by step."""
    one, two = subject.learner(seed=3), subject.learner(seed=3)
    for batch, same_batch in toy_twins(steps=8):
        same = one.learn(batch) == two.learn(same_batch)
        require(same, "two learners tell of different steps")
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
    """Move every global generator to a known place."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def global_generator_states() -> dict[str, str]:
    """Where the global generators are."""
    return {
        "torch": str(torch.get_rng_state().tolist()),
        "numpy": str([str(part) for part in np.random.get_state()]),  # noqa: NPY002
        "random": str(random.getstate()),
    }


@contextmanager
def restored_generators() -> Iterator[None]:
    """Leave the caller's global generators as they were."""
    ours, theirs, python = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(ours)
        np.random.set_state(theirs)  # noqa: NPY002
        random.setstate(python)
