"""DeepCCG-standardHead: ER's step, DeepCCG's memory."""

import copy
from itertools import combinations

import pytest
import torch

from deepccg.core import Task
from deepccg.gaussian import class_posterior, squared_distances
from deepccg.learners.heads import masked_cross_entropy, reduce_replay
from deepccg.methods import ER, SGD, DeepCCG
from deepccg.methods.deepccg_ablations import DeepCCGStandardHead
from deepccg.networks import Flatten

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (4, 5)), None)
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [5, 4], [0, 4, 3])
SELECTORS = ("greedy", "swap", "lasso", "reservoir", "random")


def modules_of(learner):
    return {"network": learner.network, "head": learner.head}


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def recorded(learner_class):
    """Keeps what a step began with: the modules, the memory, and what was drawn from it."""

    class Recorded(learner_class):
        def draw_replay(self):
            self.before = copy.deepcopy(modules_of(self))
            slots = super().draw_replay()
            self.held, self.replay = self.memory.x.clone(), self.memory.x[slots]
            return slots

    return Recorded


class UsesMeans(DeepCCGStandardHead):
    """Wrong: the loss compares with the class means in memory, not with the head."""

    def loss(self, x, y, task_idx, replay):
        inputs = torch.cat([x, self.memory.x[replay]]) if len(replay) else x
        known = self.embed(self.memory.x) if self.memory.size else x.new_zeros(0, self.dim)
        means = class_posterior(known, self.memory.y, len(self.class_table)).mean
        logits = -squared_distances(self.network(inputs), means) / 2 + 0 * self.logits(inputs)
        labels = torch.cat([y, self.memory.y[replay]])
        terms = masked_cross_entropy(logits, labels, self.masks(task_idx, replay))
        return reduce_replay(terms, len(y), self.config.reduction)


class ReplaysUnderTheBatchsTask(DeepCCGStandardHead):
    """Wrong: every replayed example has the incoming batch's mask."""

    def masks(self, task_idx, replay):
        return super().masks(task_idx, replay[:0])[:1].expand(len(task_idx) + len(replay), -1)


def check_steps_are_ers(learner_class, world, assert_stepped, **fields):
    """Against cross entropies written out example by example, with masks by label."""
    config = DeepCCGStandardHead.Config(lr=0.05, replay=4, **fields)
    learner = recorded(learner_class)(world.network(), config, memory=7, classes=(9,))
    for task, labels in zip(WINDOWS * 2, LABELS * 2, strict=True):
        batch = world.batch(labels, task)
        info = learner.learn(batch)
        kinds = [config.train_mask] * len(batch) + [config.replay_mask] * len(learner.replay)
        x = torch.cat([batch.x, learner.replay]) if len(learner.replay) else batch.x
        terms = []
        for row, kind, (label, own) in zip(x, kinds, world.who(x), strict=True):
            logits = learner.before["head"](learner.before["network"](row[None]))[0]
            score = dict(zip(learner.classes, logits, strict=True))
            allowed = world.allowed(kind, own, learner.classes)
            terms.append(torch.stack([score[c] for c in allowed]).logsumexp(0) - score[label])
        loss = torch.stack(terms).mean()
        assert info.loss == pytest.approx(loss.item(), rel=1e-9)
        assert_stepped(modules_of(learner), learner.before, loss, lr=0.05)


@pytest.mark.parametrize(
    "fields",
    [{}, {"replay_mask": "seen"}, {"train_mask": "all", "replay_mask": "all"}],
    ids=["task", "seen", "all"],
)
def test_steps_are_ers(world, assert_stepped, fields):
    check_steps_are_ers(DeepCCGStandardHead, world, assert_stepped, **fields)


@pytest.mark.parametrize("wrong", [UsesMeans, ReplaysUnderTheBatchsTask])
def test_other_losses_are_told_apart(world, assert_stepped, wrong):
    with pytest.raises(AssertionError):
        check_steps_are_ers(wrong, world, assert_stepped)


class SelectsAfterTheStep(DeepCCGStandardHead):
    """Wrong: embeddings of the network that the step has moved."""

    learn = ER.learn


class StoresAsEr(DeepCCGStandardHead):
    """Wrong: the memory of ER."""

    update_memory = ER.update_memory


class ForgetsTheEvidence(DeepCCGStandardHead):
    """Wrong: the target counts stored examples once, not the examples they stand for."""

    def __init__(self, network, config=None, **settings):
        super().__init__(network, config.model_copy(update={"target": "printed"}), **settings)


def check_keeps_the_nearest_mean(learner_class, world):
    """One example of each class per batch: the best one to leave out, by trying every one."""
    config = DeepCCGStandardHead.Config(lr=1.5, selector="greedy")
    learner = recorded(learner_class)(world.network(), config, memory=8)
    decided = 0
    for step in range(30):
        batch = world.batch([0, 1])
        learner.learn(batch)
        with torch.no_grad():
            embed = learner.before["network"]
            z = {
                number: embed(x[None])[0]
                for group in ([learner.held, batch.x] if step else [batch.x])
                for number, x in zip(world.numbers(group), group, strict=True)
            }
        held = set(world.numbers(learner.held)) if step else set()
        for label in (0, 1):
            candidates = {n for n in z if world.log[n][0] == label}
            stored = candidates & held
            expected = candidates
            if len(candidates) > 4:
                old = torch.stack([z[n] for n in stored]).mean(dim=0)
                new = torch.stack([z[n] for n in candidates - stored]).sum(dim=0)
                target = (step * old + new) / (step + 1)

                def miss(kept, z=z, target=target):
                    return (torch.stack([z[n] for n in kept]).mean(dim=0) - target).norm()

                expected = set(min(combinations(sorted(candidates), 4), key=miss))
                decided += 1
            now = {n for n in world.numbers(learner.memory.x) if world.log[n][0] == label}
            assert now == expected
    assert decided == 52


def test_memory_keeps_the_mean_of_all_evidence_under_the_network_of_the_step(world):
    check_keeps_the_nearest_mean(DeepCCGStandardHead, world)


@pytest.mark.parametrize("wrong", [SelectsAfterTheStep, StoresAsEr, ForgetsTheEvidence])
def test_other_selections_are_told_apart(world, wrong):
    with pytest.raises(AssertionError):
        check_keeps_the_nearest_mean(wrong, world)


@pytest.mark.parametrize("quota", ["fixed", "growing"])
@pytest.mark.parametrize("selector", SELECTORS)
def test_on_a_fixed_embedding_the_memory_is_deepccgs(world, selector, quota):
    """Slot for slot: the same selection, asked with the same embeddings and the same draws."""
    selection = {"selector": selector, "quota": quota, "lasso_steps": 4, "replay": 0}
    ours = DeepCCGStandardHead(Flatten(5), DeepCCGStandardHead.Config(**selection), memory=9)
    theirs = DeepCCG(Flatten(5), DeepCCG.Config(**selection, embedding_scale=1.0), memory=9)
    for task, labels in zip(WINDOWS * 4, LABELS * 4, strict=True):
        batch = world.batch(labels, task)
        ours.learn(batch)
        theirs.learn(batch)
        for name in ("x", "y", "task"):
            assert torch.equal(ours.memory[name], theirs.memory[name])


def test_without_memory_it_is_sgd_bit_for_bit(world):
    ours, sgd = DeepCCGStandardHead(world.network(), seed=3), SGD(world.network(), seed=3)
    for task, labels in zip(WINDOWS * 8, LABELS * 8, strict=True):
        batch = world.batch(labels, task)
        assert ours.learn(batch) == sgd.learn(batch)
    assert all(map(torch.equal, parameters_of(ours), parameters_of(sgd)))


def test_without_replay_it_is_er_bit_for_bit_whatever_is_stored(world):
    ours = DeepCCGStandardHead(
        world.network(), DeepCCGStandardHead.Config(replay=0), memory=6, seed=3
    )
    er = ER(world.network(), ER.Config(replay=0), memory=6, seed=3)
    for task, labels in zip(WINDOWS * 8, LABELS * 8, strict=True):
        batch = world.batch(labels, task)
        assert ours.learn(batch) == er.learn(batch)
    assert all(map(torch.equal, parameters_of(ours), parameters_of(er)))
    assert set(world.numbers(ours.memory.x)) != set(world.numbers(er.memory.x))


def test_selecting_embeds_only_classes_that_are_over_their_quota(world):
    learner = DeepCCGStandardHead(
        world.network(), DeepCCGStandardHead.Config(replay=0), memory=6, classes=(0, 1)
    )
    passed = []
    learner.network.register_forward_pre_hook(lambda _, args: passed.append(len(args[0])))
    for labels, expected in (([0, 0, 1], 3), ([0, 1], 2), ([1], 1), ([1, 1], 2 + 2 + 3)):
        passed.clear()
        learner.learn(world.batch(labels))
        assert sum(passed) == expected
