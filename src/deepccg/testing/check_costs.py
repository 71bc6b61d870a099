"""Checks of memory, state size and step cost, and of randomness.

The latter use the global generators on purpose: no learner may depend on them.
"""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from deepccg.core import Task
from deepccg.experiment.audit.measure import reachable_tensors
from deepccg.networks import NetworkConfig, build_network
from deepccg.testing.assertions import require, require_proper, require_same
from deepccg.testing.toy import (
    FEATURES,
    LABELS,
    LAYERS,
    TASKS,
    Subject,
    examples_within,
    predictions_of,
    saved_state,
    tensor_bytes,
    toy_stream,
    toy_twins,
)


def memory_stays_within_budget(subject: Subject) -> None:
    """No budget, one below the number of classes, and a full one: never more examples stored."""
    task = Task(0, (*LABELS, 20, 21))
    for budget in (0, 4, 15):
        learner = subject.learner(memory=budget)
        stream: list[Tensor] = []
        for batch in toy_stream(tasks=(task,), steps=12):
            learner.learn(batch)
            stream.append(batch.x)
            stored = examples_within(learner.state_dict(), torch.cat(stream))
            require(stored <= budget, f"{stored} examples in a memory of {budget}")
        require_proper(learner, set(task.classes))


def state_does_not_grow(subject: Subject) -> None:
    """Once memory is full, a longer stream gives no larger state."""
    batches = toy_stream(tasks=TASKS[:1], steps=48)
    learner = subject.trained(batches[:16])
    early = learner.state_dict()
    for batch in batches[16:]:
        learner.learn(batch)
    late = learner.state_dict()
    grown = tensor_bytes(late) - tensor_bytes(early)
    require(grown <= 0, f"the tensors grew by {grown} bytes in 32 steps")
    digits = 64  # counters are written in decimal
    grown = len(json.dumps(late.meta)) - len(json.dumps(early.meta))
    require(grown <= digits, f"the JSON grew by {grown} characters in 32 steps")


def step_cost_does_not_grow(subject: Subject) -> None:
    """Once memory is full, a step passes no more examples through the network than before."""
    network = build_network(NetworkConfig(kind="mlp", layers=LAYERS), (FEATURES,), 0)
    passed: list[int] = []
    network.register_forward_pre_hook(lambda _, inputs: passed.append(len(inputs[0])))
    learner = subject.on(network)
    cost = []
    for batch in toy_stream(tasks=TASKS[:1], steps=48):
        passed.clear()
        learner.learn(batch)
        cost.append(sum(passed))
    early, late = max(cost[8:16]), max(cost[40:])
    require(late <= 1.5 * early, f"{early} examples a step became {late}")


def instances_share_nothing(subject: Subject) -> None:
    """Two learners have no tensor in common, and teaching one leaves the other as it was."""
    idle, busy = subject.trained(toy_stream(steps=4)), subject.trained(toy_stream(steps=4))
    before = saved_state(idle)
    for batch in toy_stream():
        busy.learn(batch)
    require_same(before, idle.state_dict(), "after another learner learned")
    storages = [
        {t.untyped_storage().data_ptr() for t in reachable_tensors(learner) if t.numel()}
        for learner in (idle, busy)
    ]
    require(not storages[0] & storages[1], "two learners hold the same tensor")


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
