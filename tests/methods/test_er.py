"""ER: one step on batch and replay, a reservoir, and SGD when there is nothing to replay."""

import copy

import pytest
import torch
from scipy import stats

from deepccg.core import Batch, Task
from deepccg.methods import ER, SGD
from deepccg.networks import Flatten

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])


class Recorded(ER):
    """Keeps what a step began with: the modules, the memory, and what was drawn from it."""

    def draw_replay(self):
        self.before = copy.deepcopy(modules_of(self))
        slots = super().draw_replay()
        self.drawn_from, self.replay = self.memory.x.clone(), self.memory.x[slots]
        return slots


def modules_of(learner):
    return {"network": learner.network, "head": learner.head}


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def test_without_memory_it_is_sgd_bit_for_bit(world):
    er, sgd = ER(world.network(), memory=0, seed=3), SGD(world.network(), memory=0, seed=3)
    for task, labels in zip(WINDOWS * 3, LABELS * 3, strict=True):
        batch = world.batch(labels, task)
        assert er.learn(batch) == sgd.learn(batch)
    assert all(map(torch.equal, parameters_of(er), parameters_of(sgd)))


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("train_mask", ["task", "seen", "all"])
@pytest.mark.parametrize("replay_mask", ["task", "seen", "all"])
def test_each_step_is_one_sgd_step_on_batch_and_replay(
    world, assert_stepped, reduction, train_mask, replay_mask
):
    """Against cross entropies written out example by example, with masks by label."""
    config = ER.Config(
        lr=0.05, replay=4, reduction=reduction, train_mask=train_mask, replay_mask=replay_mask
    )
    learner = Recorded(world.network(), config, memory=7, classes=(9,))
    for task, labels in zip((*WINDOWS, None), (*LABELS, [0, 4]), strict=True):
        batch = world.batch(labels, task)
        learner.learn(batch)
        masks = [train_mask] * len(batch) + [replay_mask] * len(learner.replay)
        x = torch.cat([batch.x, learner.replay]) if len(learner.replay) else batch.x
        terms = []
        for row, mask, (label, own) in zip(x, masks, world.who(x), strict=True):
            logits = learner.before["head"](learner.before["network"](row[None]))[0]
            score = dict(zip(learner.classes, logits, strict=True))
            allowed = world.allowed(mask, own, learner.classes)
            terms.append(torch.stack([score[c] for c in allowed]).logsumexp(0) - score[label])
        loss = torch.stack(terms).sum() / (len(terms) if reduction == "mean" else 1)
        assert_stepped(modules_of(learner), learner.before, loss, lr=0.05)


def test_replay_is_drawn_before_the_batch_is_stored(world):
    learner = Recorded(world.network(), ER.Config(replay=10), memory=40)
    sizes = []
    for labels in LABELS * 3:
        batch = world.batch(labels)
        sizes.append(len(learner.memory.y))
        info = learner.learn(batch)
        if sizes[-1]:
            assert not set(world.numbers(batch.x)) & set(world.numbers(learner.drawn_from))
        assert info.replayed == min(10, sizes[-1]) == len(learner.replay)
        if len(learner.replay):
            replayed = world.numbers(learner.replay)
            assert len(set(replayed)) == len(replayed)
    assert sizes[:3] == [0, 4, 9]


def test_the_order_of_the_replay_does_not_matter(world):
    class Reversed(ER):
        def draw_replay(self):
            return super().draw_replay().flip(0)

    one, two = ER(world.network(), memory=9), Reversed(world.network(), memory=9)
    for labels in LABELS * 2:
        batch = world.batch(labels)
        one.learn(batch)
        two.learn(batch)
    for ours, theirs in zip(parameters_of(one), parameters_of(two), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("capacity", "length", "size"), [(6, 30, 6), (1, 4, 1), (1, 4, 4)])
def test_every_example_is_stored_with_the_same_probability(capacity, length, size):
    """Over many seeds, through the learner itself; one slot shows an off-by-one most clearly."""
    runs = 150
    stream = torch.arange(length, dtype=torch.float32)[:, None].expand(-1, 2)
    counts = torch.zeros(length)
    for seed in range(runs):
        learner = ER(Flatten(2), ER.Config(lr=1e-9, replay=0), memory=capacity, seed=seed)
        for x in stream.split(size):
            learner.learn(Batch(x, torch.zeros(len(x), dtype=torch.int64)))
        stored = learner.memory.x[:, 0].long()
        assert len(stored.unique()) == capacity
        counts[stored] += 1
    share = capacity / length
    error = (share * (1 - share) / runs) ** 0.5
    assert bool(((counts / runs - share).abs() < 4.5 * error).all())
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4


def test_labels_tasks_and_examples_stay_together(world):
    learner = ER(world.network(), ER.Config(lr=1e-3), memory=6)
    for task, labels in zip(WINDOWS * 4, LABELS * 4, strict=True):
        learner.learn(world.batch(labels, task))
        memory = learner.memory
        task_ids = [None, *(task_id for task_id, _ in learner.class_table.tasks)]
        held = [
            (learner.classes[column], task_ids[row])
            for column, row in zip(memory.y, memory.task, strict=True)
        ]
        assert held == [(label, own.id) for label, own in world.who(memory.x)]
        assert len(set(world.numbers(memory.x))) == memory.size
    assert memory.size == 6
