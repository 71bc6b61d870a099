"""Methods that are ER but for what they store: with nothing to choose, nothing differs."""

import pytest
import torch

from deepccg.core import Task
from deepccg.methods import ER, GSS, SGD, EntropySS, InfoGS

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])
CHOOSING = pytest.mark.parametrize("method", [EntropySS, GSS, InfoGS])


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


@CHOOSING
def test_without_memory_or_replay_it_is_sgd_bit_for_bit(world, method):
    learners = [
        SGD(world.network(), seed=3),
        method(world.network(), memory=0, seed=3),
        method(world.network(), method.Config(replay=0), memory=5, seed=3),
    ]
    for task, labels in zip(WINDOWS * 10, LABELS * 10, strict=True):
        batch = world.batch(labels, task)
        sgd, *others = [learner.learn(batch) for learner in learners]
        assert all(info == sgd for info in others)
    for learner in learners[1:]:
        assert all(map(torch.equal, parameters_of(learner), parameters_of(learners[0])))


@CHOOSING
def test_with_room_for_everything_it_is_er(world, method):
    """Both then replay all they saw; only the order differs."""
    learners = [c(world.network(), c.Config(replay=150), memory=150) for c in (ER, method)]
    for task, labels in zip(WINDOWS * 10, LABELS * 10, strict=True):
        batch = world.batch(labels, task)
        for learner in learners:
            learner.learn(batch)
    for ours, theirs in zip(*map(parameters_of, learners), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-9)
