"""MIR: what is replayed, that the virtual step moves nothing, and the step itself."""

import copy

import pytest
import torch
from torch import nn

from deepccg.core import Task
from deepccg.learners.heads import masked_cross_entropy
from deepccg.memory import draw_uniform
from deepccg.methods import ER
from deepccg.methods.mir import MIR

TASKS = (Task(0, (3, 4)), Task(1, (0, 1)), Task(2, (1, 2, 3)))
LABELS = ([3, 4, 4, 3], [0, 1, 0], [2, 3, 1, 2, 1])
STREAM = [*zip(TASKS, LABELS, strict=True), (None, [0, 4])] * 3
FIELDS = {"lr": 0.3, "replay": 3, "candidates": 7}


def modules_of(learner):
    return {"network": learner.network, "head": learner.head}


def loss_of(modules, learner, world, row, kind):
    """Cross entropy of one example in ``modules``, with classes by label."""
    ((label, task),) = world.who(row[None])
    logits = modules["head"](modules["network"](row[None]))[0]
    score = dict(zip(learner.classes, logits, strict=True))
    allowed = world.allowed(kind, task, learner.classes)
    return torch.stack([score[c] for c in sorted(allowed)]).logsumexp(0) - score[label]


def moved(modules, loss, lr):
    """Copies of the modules, one step further."""
    ahead = copy.deepcopy(modules)
    for name, module in ahead.items():
        gradients = torch.autograd.grad(loss, modules[name].parameters(), retain_graph=True)
        for parameter, gradient in zip(module.parameters(), gradients, strict=True):
            parameter.data -= lr * gradient
    return ahead


def check_step(learner_class, world, assert_stepped, mask):
    """Candidates, their rises and the step, example by example, on copies of network and head."""

    class Recorded(learner_class):
        def loss_of(self, x, y, task_idx, replay):
            if len(y):  # the batch comes first
                self.before = copy.deepcopy(modules_of(self))
                self.stored = self.memory.x.clone() if self.memory.size else x[:0]
                self.replay = x[:0]
                draws = torch.Generator()
                draws.set_state(self.generator.get_state())
                self.drawn = draw_uniform(self.memory.y, self.config.candidates, draws)
            else:
                self.replay = self.memory.x[replay]
            return super().loss_of(x, y, task_idx, replay)

    config = learner_class.Config(**FIELDS, train_mask=mask, replay_mask=mask)
    learner = Recorded(world.network(), config, memory=12, seed=1)
    chosen_by_rise = 0
    for task, labels in STREAM:
        batch = world.batch(labels, task)
        learner.learn(batch)
        before = learner.before
        terms = [loss_of(before, learner, world, row, mask) for row in batch.x]
        loss = torch.stack(terms).mean()
        ahead = moved(before, loss, lr=0.3)
        candidates = learner.stored[learner.drawn]
        rises = [
            (
                loss_of(ahead, learner, world, row, mask)
                - loss_of(before, learner, world, row, mask)
            ).item()
            for row in candidates
        ]
        order = sorted(range(len(rises)), key=lambda i: -rises[i])
        expected = candidates[order[:3]]
        assert sorted(world.numbers(learner.replay)) == sorted(world.numbers(expected))
        if len(expected):
            chosen_by_rise += len(candidates) > len(expected)
            again = [loss_of(before, learner, world, row, mask) for row in learner.replay]
            loss = loss + torch.stack(again).mean()
        assert_stepped(modules_of(learner), before, loss, lr=0.3)
    assert chosen_by_rise > 5


class LargestLoss(MIR):
    """Wrong: what is hard now, not what becomes harder."""

    def most_interfered(self, gradients):
        del gradients
        candidates = draw_uniform(self.memory.y, self.config.candidates, self.generator)
        if len(candidates) <= 3:
            return candidates
        return candidates[self.losses(candidates, self.scores).topk(3).indices]


class LeastInterfered(MIR):
    """Wrong: the sign of the rise."""

    def most_interfered(self, gradients):
        return super().most_interfered([-gradient for gradient in gradients])


class WithoutTheTask(MIR):
    """Wrong: examples of the batch's own task are no candidates."""

    def most_interfered(self, gradients):
        other = (self.memory.task != self.class_table.current).nonzero().flatten()
        drawn = other[draw_uniform(other, self.config.candidates, self.generator)]
        if len(drawn) <= 3:
            return drawn
        rise = self.losses(drawn, self.virtual_step(gradients)) - self.losses(drawn, self.scores)
        return drawn[rise.topk(3).indices]


class StaysAhead(MIR):
    """Wrong: the step begins where the virtual one ended."""

    def most_interfered(self, gradients):
        chosen = super().most_interfered(gradients)
        for parameter, gradient in zip(self.trainable_parameters(), gradients, strict=True):
            parameter.data -= self.config.lr * gradient
        return chosen


@pytest.mark.parametrize("mask", ["seen", "task"])
def test_what_the_batch_would_harm_most_is_replayed(make_world, assert_stepped, mask):
    check_step(MIR, make_world(), assert_stepped, mask)


@pytest.mark.parametrize("wrong", [LargestLoss, LeastInterfered, WithoutTheTask, StaysAhead])
def test_another_choice_or_step_is_noticed(make_world, assert_stepped, wrong):
    with pytest.raises(AssertionError):
        check_step(wrong, make_world(), assert_stepped, "seen")


def state_of(learner):
    return [p.detach().clone() for p in learner.trainable_parameters()]


class MovesAndReturns(MIR):
    """Wrong: weights are moved and moved back, which rounds and counts as steps."""

    def virtual_step(self, gradients):
        weights, lr = [p.detach() for p in self.trainable_parameters()], self.optimiser.lr

        def scores(x):
            torch._foreach_sub_(weights, gradients, alpha=lr)
            found = self.scores(x)
            torch._foreach_add_(weights, gradients, alpha=lr)
            return found

        return scores


def check_virtual_step(learner_class, world):
    """Its scores are those of copies that were moved; the weights were not touched."""
    learner = learner_class(world.network(), MIR.Config(lr=0.3), memory=70)
    for _ in range(20):
        learner.learn(world.batch([0, 1, 2, 1]))
    before = state_of(learner)
    changes = [weight._version for weight in learner.trainable_parameters()]
    gradients = [torch.randn_like(weight) for weight in before]
    ahead = copy.deepcopy(learner)
    for weight, gradient in zip(ahead.trainable_parameters(), gradients, strict=True):
        weight.data -= 0.3 * gradient
    found = learner.virtual_step(gradients)(learner.memory.x)
    torch.testing.assert_close(found.detach(), ahead.scores(learner.memory.x).detach())
    assert all(map(torch.equal, before, state_of(learner)))
    assert changes == [weight._version for weight in learner.trainable_parameters()]


def test_the_virtual_step_does_not_move_the_weights(make_world):
    check_virtual_step(MIR, make_world())
    with pytest.raises(AssertionError):
        check_virtual_step(MovesAndReturns, make_world())


def test_scoring_candidates_moves_no_running_statistics(world):
    class Normalised(nn.Module):
        dim = 3

        def __init__(self):
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(5, 3), nn.BatchNorm1d(3)).double()

        def forward(self, x):
            return self.inner(x)

    learner = MIR(Normalised(), MIR.Config(replay=2, candidates=6), memory=9)
    for _ in range(5):
        learner.learn(world.batch([0, 1, 2]))
    norm = learner.network.inner[1]
    assert int(norm.num_batches_tracked) == 5 + 4  # each batch, and each replay there was


def test_with_no_more_candidates_than_replays_it_is_er(world):
    fields = {"replay": 4, "train_mask": "task", "replay_mask": "task"}
    mir = MIR(world.network(), MIR.Config(candidates=1, **fields), memory=9, seed=3)
    er = ER(world.network(), ER.Config(reduction="means", **fields), memory=9, seed=3)
    for task, labels in STREAM:
        batch = world.batch(labels, task)
        one, other = mir.learn(batch), er.learn(batch)
        assert one.loss == pytest.approx(other.loss, rel=1e-9)
        assert one.replayed == other.replayed
    assert torch.equal(mir.memory.x, er.memory.x)
    for a, b in zip(state_of(mir), state_of(er), strict=True):
        torch.testing.assert_close(a, b)


def test_without_memory_nothing_is_replayed(world):
    learner = MIR(world.network(), memory=0)
    assert learner.learn(world.batch([0, 1])).replayed == 0
    learner = MIR(world.network(), MIR.Config(replay=0), memory=9)
    for _ in range(3):
        assert learner.learn(world.batch([0, 1])).replayed == 0
    logits = learner.scores(learner.memory.x)
    own = masked_cross_entropy(logits, learner.memory.y, torch.ones_like(logits, dtype=torch.bool))
    torch.testing.assert_close(learner.losses(torch.arange(len(own)), learner.scores), own)
