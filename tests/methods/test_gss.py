"""GSS: scores against gradients taken one by one, and the odds of replacing."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from deepccg.core import Batch, Task
from deepccg.methods.gss import GSS
from deepccg.networks import Flatten

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])


class Recorded:
    """Mixed into a variant: keeps what was drawn, and each new example's score."""

    def gradient_products(self, x, y, task_idx, drawn):
        self.drawn = self.memory.x[drawn]
        return super().gradient_products(x, y, task_idx, drawn)

    def scores_of(self, products, batch):
        self.new_scores = super().scores_of(products, batch)
        return self.new_scores


def recorded(learner_class):
    return type(learner_class.__name__, (Recorded, learner_class), {})


class WrongMask(GSS):
    """Wrong: gradients compared over all classes, whatever the task."""

    def gradient_products(self, x, y, task_idx, drawn):
        self.masks = lambda task_idx, replay: torch.ones(
            len(task_idx) + len(replay), len(self.class_table), dtype=torch.bool
        )
        products = super().gradient_products(x, y, task_idx, drawn)
        del self.masks
        return products


class BareCosine(GSS):
    """Wrong: the score is the cosine, without one added."""

    def scores_of(self, products, batch):
        return super().scores_of(products, batch) - 1


class BeforeTheStep(GSS):
    """Wrong: gradients at the parameters the step began with."""

    def apply_gradients(self, gradients):
        self.later = gradients

    def update_memory(self, x, y, task_idx):
        super().update_memory(x, y, task_idx)
        super().apply_gradients(self.later)


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def gradient_of(learner, world, example):
    """One example's gradient by autograd, its mask written out by label."""
    [(label, task)] = world.who(example[None])
    logits = learner.head(learner.network(example[None]))[0]
    score = dict(zip(learner.classes, logits, strict=True))
    allowed = world.allowed("task", task, learner.classes)
    loss = torch.stack([score[c] for c in allowed]).logsumexp(0) - score[label]
    parameters = [p for module in (learner.network, learner.head) for p in module.parameters()]
    parts = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return torch.cat([part.flatten() for part in parts])


def cosine(g, h):
    return float(g @ h / (g.norm() * h.norm()))


def check_scores(learner_class, world, compared):
    """Each batch's scores from single gradients; stored ones stay as they were."""
    config = learner_class.Config(lr=0.3, compared=compared)
    learner = recorded(learner_class)(world.network(), config, memory=17)
    first_scores = {}
    for task, labels in zip((*WINDOWS, None) * 3, (*LABELS, [0, 4]) * 3, strict=True):
        batch = world.batch(labels, task)
        learner.learn(batch)
        gradients = [gradient_of(learner, world, example) for example in batch.x]
        references = [gradient_of(learner, world, example) for example in learner.drawn]
        for i, (h, score) in enumerate(zip(gradients, learner.new_scores, strict=True)):
            others = references + gradients[: min(i, compared - len(references))]
            expected = 1 + max(cosine(h, g) for g in others) if others else 0.1
            assert 0 < score <= 2
            assert float(score) == pytest.approx(max(expected, 1e-6), abs=1e-9)
        first_scores |= zip(world.numbers(batch.x), learner.new_scores.tolist(), strict=True)
        held = [first_scores[number] for number in world.numbers(learner.memory.x)]
        assert learner.memory["score"].tolist() == held


@pytest.mark.parametrize("compared", [3, 100])
def test_scores_are_those_of_single_gradients_after_the_step(make_world, compared):
    check_scores(GSS, make_world(), compared)


@pytest.mark.parametrize("wrong", [WrongMask, BareCosine, BeforeTheStep])
def test_wrong_scores_are_noticed(make_world, wrong):
    with pytest.raises(AssertionError):
        check_scores(wrong, make_world(), compared=3)


def check_copies_stay_out_and_opposites_enter(learner_class):
    """A copy of a drawn example has the cosine 1; with two classes the other label gives -1."""
    learner = recorded(learner_class)(Flatten(2), learner_class.Config(lr=1e-9), memory=6)
    task = Task(0, (0, 1))
    x = torch.tensor([[1.0, 0.1 * i] for i in range(6)])
    learner.learn(Batch(x, torch.zeros(6, dtype=torch.int64), task))
    assert learner.memory["score"][0] == pytest.approx(0.1)
    assert bool((learner.memory["score"][1:] > 1.9).all())
    for _ in range(20):
        learner.learn(Batch(x, torch.zeros(6, dtype=torch.int64), task))
        assert learner.new_scores == pytest.approx([2.0] * 6, abs=1e-5)
        assert torch.equal(learner.memory.x, x)
        assert learner.memory.y.tolist() == [0] * 6
    learner.learn(Batch(x[3:4], torch.ones(1, dtype=torch.int64), task))
    assert float(learner.new_scores) < 0.03
    assert sorted(learner.memory.y.tolist()) == [0, 0, 0, 0, 0, 1]
    assert learner.memory["score"][learner.memory.y == 1] == pytest.approx(learner.new_scores)


def test_copies_stay_out_and_opposites_enter():
    class NoGate(GSS):
        """Wrong: similar examples are considered, too."""

        def scores_of(self, products, batch):
            return super().scores_of(products, batch).clamp(max=0.9)

    check_copies_stay_out_and_opposites_enter(GSS)
    for wrong in (NoGate, BareCosine):
        with pytest.raises(AssertionError):
            check_copies_stay_out_and_opposites_enter(wrong)


def check_odds(learner_class):
    """Slot i is taken with probability S_i / sum S times S_i / (S_i + s)."""
    learner = learner_class(Flatten(2), memory=4)
    stored, score, trials = torch.tensor([0.5, 0.8, 1.3, 2.0]), torch.tensor([0.7]), 4000
    nothing = torch.zeros(4, dtype=torch.int64)
    learner.memory.append(torch.zeros(4, 2), nothing, nothing, score=stored)
    taken = [learner.slot_for(score).tolist() for _ in range(trials)]
    counts = [sum(slots == [i] for slots in taken) for i in range(4)]
    chances = (stored / stored.sum() * stored / (stored + score)).double().numpy()
    expected = trials * np.append(chances, 1 - chances.sum())
    observed = [*counts, trials - sum(counts)]
    assert stats.chisquare(observed, expected * trials / expected.sum()).pvalue > 1e-4


def test_the_odds_of_replacing():
    class OtherWayRound(GSS):
        """Wrong: the candidate's share decides, not the stored example's."""

        def slot_for(self, score):
            stored = self.memory["score"]
            slot = torch.multinomial(stored, 1, generator=self.generator)
            chance = score / (stored[slot] + score)
            return slot[torch.rand(1, generator=self.generator) < chance]

    class ShiftedScores(GSS):
        """Wrong: odds from scores that begin at the least stored one."""

        def slot_for(self, score):
            least = self.memory["score"].min()
            self.memory["score"].sub_(least - 1e-6)
            slot = super().slot_for(score)
            self.memory["score"].add_(least - 1e-6)
            return slot

    check_odds(GSS)
    for wrong in (OtherWayRound, ShiftedScores):
        with pytest.raises(AssertionError):
            check_odds(wrong)


@given(batch=st.integers(1, 5), drawn=st.integers(1, 4), seed=st.integers(0, 2**20))
def test_the_mean_gradient_of_the_batch(batch, drawn, seed):
    generator = torch.Generator().manual_seed(seed)
    gradients = torch.randn(batch + drawn, 3, generator=generator, dtype=torch.float64)
    found = GSS(Flatten(2)).batch_cosines(gradients @ gradients.T, batch)
    mean = gradients[:batch].mean(dim=0)
    expected = [cosine(mean, g) for g in gradients[batch:]]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def check_batch_gate(learner_class):
    """One opposite example in a similar batch: with the gate nothing of the batch is considered."""
    task = Task(0, (0, 1))
    x = torch.tensor([[1.0, 0.1 * i] for i in range(4)])
    for labels, enters in (([0, 0, 0, 1], False), ([1, 1, 1, 0], True)):
        config = learner_class.Config(lr=1e-9, batch_gate=True)
        learner = learner_class(Flatten(2), config, memory=4)
        learner.learn(Batch(x, torch.zeros(4, dtype=torch.int64), task))
        learner.learn(Batch(x + 0.05, torch.tensor(labels), task))
        assert (1 in learner.memory.y.tolist()) == enters


def test_with_the_gate_the_batch_decides():
    class NoGate(GSS):
        """Wrong: the gate is always open."""

        def batch_cosines(self, products, batch):
            return super().batch_cosines(products, batch) - 2

    check_batch_gate(GSS)
    with pytest.raises(AssertionError):
        check_batch_gate(NoGate)


def test_a_gradient_of_zero_is_orthogonal_to_everything():
    learner = GSS(Flatten(2))
    products = torch.diag(torch.tensor([0.0, 1.0, 0.0, 4.0]))
    assert learner.scores_of(products, 2).tolist() == [1.0, 1.0]
    assert learner.batch_cosines(torch.zeros(3, 3), 2).tolist() == [0.0]
