"""Several optimiser steps per batch, against loops written by hand."""

import copy

import pytest
import torch
from recipe_world import REPLAYING, batch, make, trained
from torch import Tensor

from deepccg.core import InputError
from deepccg.learners.base import NetworkLearner
from deepccg.learners.heads import HeadLearner, masked_cross_entropy
from deepccg.methods import ER

STEPS = 9


def weights(learner: NetworkLearner) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in learner.trainable_parameters()]


def er_by_hand(learner: ER, step: int, repeats: int, redraw: bool = True) -> list[Tensor]:
    """Weights of ER after a batch, from the formula alone."""
    one, memory = batch(step), learner.memory
    network, head = copy.deepcopy(learner.network), copy.deepcopy(learner.head)
    parameters = [*network.parameters(), *head.parameters()]
    generator = torch.Generator()
    generator.set_state(learner.generator.get_state())
    columns = torch.tensor([learner.classes.index(label) for label in one.y.tolist()])
    own = {i: [learner.classes.index(c) for c in t.classes] for i, t in enumerate_tasks(learner)}
    task = next(i for i, t in enumerate_tasks(learner) if t == one.task)
    slots = torch.tensor([], dtype=torch.int64)
    for repeat in range(repeats):
        if redraw or repeat == 0:
            slots = torch.randperm(memory.size, generator=generator)[: learner.config.replay]
        logits = head(network(torch.cat([one.x, memory.x[slots]])))
        labels = torch.cat([columns, memory.y[slots]])
        tasks = [task] * len(one) + memory.task[slots].tolist()
        terms = [
            torch.logsumexp(row[own[i]], dim=0) - row[label]
            for row, label, i in zip(logits, labels, tasks, strict=True)
        ]
        gradients = torch.autograd.grad(torch.stack(terms).mean(), parameters)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= learner.config.lr * gradient
    return [parameter.detach() for parameter in parameters]


def enumerate_tasks(learner: NetworkLearner):
    return [(i, batch(6 * (i - 1)).task) for i in range(1, len(learner.class_table.tasks) + 1)]


def apart(one: list[Tensor], other: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("repeats", [1, 2, 4])
def test_er_takes_the_steps_that_a_loop_takes(repeats):
    learner = trained("er", STEPS, repeats=repeats, replay=4)
    expected = er_by_hand(learner, STEPS, repeats)
    one_draw = er_by_hand(learner, STEPS, repeats, redraw=False)
    learner.learn(batch(STEPS))
    assert apart(weights(learner), expected) < 1e-12
    if repeats > 1:  # wrong: the same replay again
        assert apart(weights(learner), one_draw) > 1e-5


@pytest.mark.filterwarnings("ignore:the state was saved with other method fields")
@pytest.mark.parametrize("name", REPLAYING)
def test_every_method_takes_its_own_step_again(name, monkeypatch):
    """Learning a batch three times, with a memory that takes it the last time only."""
    repeating = trained(name, STEPS, repeats=3)
    looping = make(name)
    looping.load_state_dict(repeating.state_dict())
    seen = looping.class_table.seen.clone()
    kept = ("update_memory", "store", "note")  # what happens once per batch
    for _ in range(2):
        with monkeypatch.context() as patched:
            for hook in kept:
                if hasattr(looping, hook):
                    patched.setattr(looping, hook, lambda *_: None)
            looping.learn(batch(STEPS))
        looping.class_table.seen, looping.steps = seen.clone(), STEPS
    looping.learn(batch(STEPS))
    repeating.learn(batch(STEPS))
    assert apart(weights(repeating), weights(looping)) == 0
    assert repeating.steps == looping.steps == STEPS + 1


@pytest.mark.parametrize("name", REPLAYING)
def test_the_memory_takes_a_batch_once(name):
    learner = make(name, repeats=4)
    learner.learn(batch(0))
    assert learner.memory.size == len(batch(0)) == int(learner.class_table.seen.sum())
    stored = {x.numpy().tobytes() for x in learner.memory.x}
    assert stored == {x.numpy().tobytes() for x in batch(0).x}


def test_a_method_of_ones_own_that_takes_one_step_says_so():
    class OneStep(HeadLearner):
        Config = ER.Config

        def learn(self, batch):
            x, y, task_idx = self.begin_step(batch)
            mask = self.masks(task_idx, y[:0])
            return self.end_step(
                self.optimise(masked_cross_entropy(self.logits(x), y, mask).mean())
            )

    learner = OneStep(make("er").network, ER.Config(repeats=2), memory=4)
    with pytest.raises(InputError, match="OneStep takes one optimiser step per batch"):
        learner.learn(batch(0))
