"""Checks of memory, of the size of states, of the cost of a step."""

import json

import torch
from torch import Tensor

from deepccg.core import Task
from deepccg.experiment.audit.reach import Reach
from deepccg.testing.toy import (
    LABELS,
    TASKS,
    Subject,
    examples_within,
    require,
    require_proper,
    require_same,
    saved_state,
    toy_network,
    toy_stream,
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
    sizes = [sum(t.nbytes for t in state.tensors.values()) for state in (early, late)]
    grown = sizes[1] - sizes[0]
    require(grown <= 0, f"the tensors grew by {grown} bytes in 32 steps")
    digits = 64  # counters are written in decimal
    grown = len(json.dumps(late.meta)) - len(json.dumps(early.meta))
    require(grown <= digits, f"the JSON grew by {grown} characters in 32 steps")


def step_cost_does_not_grow(subject: Subject) -> None:
    """Once memory is full, a step passes no more examples through the network than before."""
    network = toy_network()
    passed: list[int] = []
    network.register_forward_pre_hook(lambda _, inputs: passed.append(len(inputs[0])))
    learner = subject.learner(network)
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
    reaches = [Reach(learner, code=False) for learner in (idle, busy)]
    storages = [
        {part.start for part in reach.parts if part.values.flags.writeable} for reach in reaches
    ]
    require(not storages[0] & storages[1], "two learners hold the same tensor")
