"""ESMER: weights, stable network, error memory and filtered reservoir, each step from outside."""

import copy
import json
import math

import pytest
import torch
from pydantic import ValidationError

from deepccg.core import Batch, State, StateMismatch, Task
from deepccg.methods.er import ER
from deepccg.methods.esmer import ESMER
from deepccg.networks import Flatten, SlimResNet18

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])
STREAM = [(task, labels) for task, labels in zip(WINDOWS, LABELS, strict=True) for _ in range(6)]


class EveryStep(ESMER):
    """Wrong: the stable network follows at every step."""

    def follow(self):
        self.stable.average(self.network, self.head, self._decay(self.config.ema_decay))


class Upside(ESMER):
    """Wrong: a large loss is made larger."""

    def weights(self, error, small):
        return 1 / super().weights(error, small)


class NoOutliers(ESMER):
    """Wrong: every loss enters the running mean."""

    def note(self, error):
        decay = self._decay(self.config.loss_decay)
        self.errors.mean = decay * self.errors.mean + (1 - decay) * float(error.mean())


class WarmUp(ESMER):
    """Wrong online: nothing is stored or noted in the first epoch of a task, the only one."""

    def update_memory(self, x, y, task_idx):
        pass

    def note(self, error):
        pass


class CountsAll(ESMER):
    """Wrong: the reservoir's counter also counts what it was not offered."""

    def update_memory(self, x, y, task_idx):
        super().update_memory(x, y, task_idx)
        self.errors.offered = int(self.class_table.seen.sum())


class StoresAll(ESMER):
    """Wrong: the margin does not reach the memory."""

    def begin_step(self, batch):
        self.whole = super().begin_step(batch)
        return self.whole

    def update_memory(self, *_):
        super().update_memory(*self.whole)


def recorded(learner_class):
    """The class, keeping what a step began with."""

    class Recorded(learner_class):
        def draw_replay(self):
            self.before = copy.deepcopy({"network": self.network, "head": self.head})
            self.stable_before = copy.deepcopy(self.stable)
            slots = super().draw_replay()
            self.replay = self.memory.x[slots].clone()
            return slots

    return Recorded


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def stable_parameters(teacher):
    return [p.clone() for m in (teacher.network, teacher.head) for p in m.parameters()]


def cross_entropies(world, learner, x, logits_of):
    """One example after the other, over the classes of its own task."""
    terms = []
    for row, (label, own) in zip(x, world.who(x), strict=True):
        score = dict(zip(learner.classes, logits_of(row[None])[0], strict=True))
        allowed = world.allowed("task", own, learner.classes)
        terms.append(torch.stack([score[c] for c in allowed]).logsumexp(0) - score[label])
    return torch.stack(terms)


def check_steps(learner_class, world, assert_stepped):
    """Every step against the update written out example by example; the margin is made to bite."""
    beta, gamma, lr = 1.05, 0.3, 0.2
    config = ESMER.Config(lr=lr, replay=4, margin=beta, consistency=gamma, ema_decay=0.9)
    learner = recorded(learner_class)(world.network(), config, memory=50)
    mean, weighted, followed = 0.0, 0, 0
    for step, (task, labels) in enumerate(STREAM, start=1):
        batch = world.batch(labels, task)
        stored = len(learner.memory.y)
        learner.learn(batch)
        before, stable = learner.before, learner.stable_before
        working = lambda x, before=before: before["head"](before["network"](x))  # noqa: E731
        a = cross_entropies(world, learner, batch.x, stable.logits)
        b = cross_entropies(world, learner, batch.x, working)
        large = [mean > 0 and loss > beta * mean for loss in a.tolist()]
        v = torch.tensor([mean / loss if big else 1.0 for loss, big in zip(a, large, strict=True)])
        loss = (v.double() * b).mean()
        if len(learner.replay):
            apart = working(learner.replay) - stable.logits(learner.replay)
            loss = loss + cross_entropies(world, learner, learner.replay, working).mean()
            loss = loss + gamma * apart.square().sum() / apart.numel()
        modules = {"network": learner.network, "head": learner.head}
        assert_stepped(modules, before, loss, lr)
        weighted += sum(large)

        kept = [n for n, big in zip(world.numbers(batch.x), large, strict=True) if not big]
        assert learner.errors.offered == len(learner.memory.y) == stored + len(kept)
        assert world.numbers(learner.memory.x)[stored:] == kept

        decay = min(1 - 1 / (step + 1), 0.9)
        old, new = stable_parameters(stable), stable_parameters(learner.stable)
        if not all(map(torch.equal, old, new)):
            followed += 1
            for was, now, w in zip(old, new, parameters_of(learner), strict=True):
                torch.testing.assert_close(now, decay * was + (1 - decay) * w)
        calm = a[a <= a.mean() + a.std()]
        decay = min(1 - 1 / (step + 1), 0.99)
        mean = decay * mean + (1 - decay) * calm.mean().item()
        assert learner.errors.mean == pytest.approx(mean, rel=1e-9)
    assert weighted > 5
    assert 5 < followed < len(STREAM)


def test_each_step_is_the_published_update(world, assert_stepped):
    check_steps(ESMER, world, assert_stepped)


@pytest.mark.parametrize(
    "wrong", [EveryStep, Upside, NoOutliers, WarmUp, CountsAll, StoresAll], ids=lambda c: c.__name__
)
def test_each_wrong_step_is_told_apart(wrong, world, assert_stepped):
    with pytest.raises(AssertionError):
        check_steps(wrong, world, assert_stepped)


def check_rate(learner_class):
    """Over 10 000 steps the stable network moves in a share r of them."""
    learner = learner_class(Flatten(1), ESMER.Config(ema_rate=0.7), classes=(0,))
    moved, steps = 0, 10_000
    for step in range(steps):
        before = learner.stable.head.bias.clone()
        with torch.no_grad():
            learner.head.bias.fill_(step + 1.0)
        learner.follow()
        moved += not torch.equal(before, learner.stable.head.bias)
    assert abs(moved / steps - 0.7) < 3 * (0.7 * 0.3 / steps) ** 0.5


def test_stable_network_moves_as_often_as_it_should():
    check_rate(ESMER)
    with pytest.raises(AssertionError):
        check_rate(EveryStep)


def test_equal_networks_stay_equal(world):
    learner = ESMER(world.network(), classes=(0, 1))
    before = stable_parameters(learner.stable)
    for _ in range(20):
        learner.follow()
    assert all(map(torch.equal, before, stable_parameters(learner.stable)))
    assert all(map(torch.equal, before, parameters_of(learner)))


def check_weights(learner_class):
    learner = learner_class(Flatten(2), ESMER.Config(margin=2.5))
    error = torch.tensor([0.1, 1.0, 2.5, 2.6, 40.0], dtype=torch.float64)
    assert bool(learner.within_margin(error).all())  # no running mean yet
    learner.errors.mean = 1.0
    small = learner.within_margin(error)
    assert small.tolist() == [True, True, True, False, False]
    weights = learner.weights(error, small)
    assert weights[:3].tolist() == [1, 1, 1]
    torch.testing.assert_close(weights[3:] * error[3:], torch.ones(2, dtype=torch.float64))


def test_a_large_loss_counts_like_the_running_mean():
    check_weights(ESMER)
    with pytest.raises(AssertionError):
        check_weights(Upside)


def check_outlier(learner_class):
    """A huge loss in ten leaves the running mean where the other nine put it."""
    usual = torch.linspace(0.5, 1.5, 9, dtype=torch.float64)
    calm, struck = learner_class(Flatten(2)), learner_class(Flatten(2))
    calm.note(torch.full((9,), usual.mean().item(), dtype=torch.float64))
    struck.note(torch.cat([usual, torch.tensor([1e6], dtype=torch.float64)]))
    assert struck.errors.mean == pytest.approx(calm.errors.mean, rel=1e-12)


def test_running_mean_ignores_an_outlier():
    check_outlier(ESMER)
    with pytest.raises(AssertionError):
        check_outlier(NoOutliers)


def test_running_mean_takes_a_single_loss():
    learner = ESMER(Flatten(2))
    learner.note(torch.tensor([2.0]))
    assert learner.errors.mean == 1.0  # the first step's decay is one half, the start 0


def check_memory_after_first_task(learner_class, world):
    learner = learner_class(world.network(), memory=10)
    for _ in range(5):
        learner.learn(world.batch([0, 0, 0, 0], WINDOWS[0]))  # only the class in column 0
    assert learner.memory.size == 10
    assert learner.errors.mean > 0


def test_memory_is_filled_during_the_first_task(world):
    check_memory_after_first_task(ESMER, world)
    with pytest.raises(AssertionError):
        check_memory_after_first_task(WarmUp, world)


@pytest.mark.parametrize("rate", [0.0, 0.7])
def test_without_margin_and_consistency_it_is_er_bit_for_bit(world, rate):
    """The stable network then only watches, whether it moves or not."""
    fields = {"lr": 0.05, "replay": 4, "reduction": "means"}
    config = ESMER.Config(**fields, consistency=0, ema_rate=rate, margin="none")
    esmer = ESMER(world.network(), config, memory=7, seed=3)
    er = ER(world.network(), ER.Config(**fields), memory=7, seed=3)
    start = [p.clone() for p in esmer.stable.network.parameters()]
    for task, labels in STREAM * 2:
        batch = world.batch(labels, task)
        assert esmer.learn(batch).loss == er.learn(batch).loss
    assert all(map(torch.equal, parameters_of(esmer), parameters_of(er)))
    assert torch.equal(esmer.memory.x, er.memory.x)
    moved = not all(map(torch.equal, start, esmer.stable.network.parameters()))
    assert moved == (rate > 0)


def test_new_rows_of_the_head_are_taken_over_and_old_ones_stay(world):
    learner = ESMER(world.network(), ESMER.Config(ema_rate=0))
    learner.learn(world.batch([0, 1], WINDOWS[0]))
    before = learner.stable.head.weight.clone()
    learner.begin_step(world.batch([3], WINDOWS[1]))
    assert len(learner.stable.head.weight) == len(learner.stable.head.bias) == 4
    assert torch.equal(learner.stable.head.weight[:3], before)
    assert torch.equal(learner.stable.head.weight[3], learner.head.weight[3])
    assert torch.equal(learner.stable.head.bias[3], learner.head.bias[3])


def test_no_gradient_reaches_the_stable_network(world):
    learner = ESMER(world.network(), memory=5)
    for task, labels in STREAM[:8]:
        learner.learn(world.batch(labels, task))
    modules = (learner.stable.network, learner.stable.head)
    assert not any(p.requires_grad for m in modules for p in m.parameters())
    assert not learner.stable.logits(world.batch([0]).x).requires_grad
    ours = {p.data_ptr() for m in modules for p in m.parameters()}
    assert not ours & {p.data_ptr() for p in learner.trainable_parameters()}


def test_each_network_predicts_when_asked(world):
    learners = {
        name: ESMER(world.network(), ESMER.Config(predict_with=name), memory=6)
        for name in ("stable", "working")
    }
    for task, labels in STREAM:
        batch = world.batch(labels, task)
        for learner in learners.values():
            learner.learn(batch)
    x = world.batch([0, 1, 2]).x
    stable, working = (learners[name].predict_logits(x) for name in ("stable", "working"))
    other = learners["stable"]
    torch.testing.assert_close(stable, other.stable.head(other.stable.network(x)))
    torch.testing.assert_close(working, other.head(other.network(x)).detach())
    assert not torch.allclose(stable, working)


def image_batch(size=6):
    x = torch.randint(256, (size, 3, 32, 32), generator=torch.Generator().manual_seed(0))
    return Batch(x.to(torch.uint8), torch.arange(size) % 2, Task(0, (0, 1)))


@pytest.mark.parametrize(("budget", "limit"), [(400, 43), (300, 0), (357, 0), (358, 1)])
def test_copy_is_paid_for_in_bytes(budget, limit):
    """274,980 parameters of 4 bytes; an image of 3072 bytes with two 8-byte labels."""
    config = ESMER.Config(memory_rule="bytes", memory_reduction=400)
    learner = ESMER(SlimResNet18(), config, memory=budget, classes=range(10))
    learner.learn(image_batch())
    assert learner.errors.limit == max(0, budget - math.ceil(274_980 * 4 / 3088)) == limit
    assert learner.memory.size == min(6, limit)
    assert learner.memory_usage().bytes["network copy"] == 274_980 * 4
    assert learner.memory_usage().bytes["examples"] == min(6, limit) * 3088


@pytest.mark.parametrize(("budget", "reduction", "limit"), [(20, 12, 8), (20, 0, 20), (5, 9, 0)])
def test_fewer_examples_are_stored_than_the_budget_allows(world, budget, reduction, limit):
    config = ESMER.Config(memory_reduction=reduction)
    learner = ESMER(world.network(), config, memory=budget)
    for task, labels in STREAM:
        learner.learn(world.batch(labels, task))
        assert learner.memory.size <= limit
    assert learner.memory.size == limit
    assert learner.memory_usage().examples == limit


def test_no_margin_survives_json_and_infinity_is_refused():
    config = ESMER.Config(margin="none")
    text = json.dumps(config.model_dump(mode="json"), allow_nan=False)
    assert ESMER.Config.model_validate_json(text) == config
    for margin in (math.inf, math.nan, 0.0, "some"):
        with pytest.raises(ValidationError):
            ESMER.Config(margin=margin)


def test_states_that_do_not_fit_are_refused(world):
    learner = ESMER(world.network(), memory=5)
    learner.learn(world.batch([0, 1], WINDOWS[0]))
    state = learner.state_dict()
    fewer = {k: v[:-1] if k.startswith("stable.head.") else v for k, v in state.tensors.items()}
    parts = state.meta["parts"]
    said = {**state.meta, "parts": {**parts, "stable": {"rows": 2}}}
    with pytest.raises(StateMismatch, match="copied head has"):
        learner.load_state_dict(State(fewer, state.meta))
    with pytest.raises(StateMismatch, match="stable head has 2 rows for 3 classes"):
        learner.load_state_dict(State(fewer, said))
    for errors in ({"mean": -1.0}, {"offered": "3"}, {"limit": math.inf}):
        wrong = {**state.meta, "parts": {**parts, "errors": {**parts["errors"], **errors}}}
        with pytest.raises(StateMismatch, match="error memory"):
            learner.load_state_dict(State(state.tensors, wrong))
