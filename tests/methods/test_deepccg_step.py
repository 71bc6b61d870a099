"""DeepCCG's step, against losses written out example by example in double precision."""

import copy
import math
import warnings
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import Diverged, Task
from deepccg.gaussian import class_posterior, fitted_scale
from deepccg.memory import draw_balanced, draw_uniform, keep_one_per_class
from deepccg.methods import DeepCCG

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (5, 6)), None)
LABELS = ([0, 1, 2, 1, 0], [1, 2, 3, 3, 2, 1], [5, 6, 5, 6], [0, 3, 6, 5])
LR = 0.05


class Recorded(DeepCCG):
    """Keeps what a step began with: the modules, the memory, R, and what R is kept from."""

    def sample_replay(self, *step):
        self.before = copy.deepcopy(modules_of(self))
        drawn = super().sample_replay(*step)
        outside = torch.ones(self.memory.size, dtype=torch.bool)
        outside[drawn.slots] = False
        self.replay, self.rest = self.memory.x[drawn.slots], self.memory.x[outside]
        return drawn

    def step_of(self, batch):
        """Everything stepped on, with the kind of mask that applies to it."""
        kinds = [self.config.train_mask] * len(batch) + [self.config.replay_mask] * len(self.replay)
        return (torch.cat([batch.x, self.replay]) if len(self.replay) else batch.x), kinds


def modules_of(learner):
    return {"network": learner.network, "scale": learner.log_scale}


def trained_modules(learner):
    learned = learner.config.embedding_scale == "learned"
    return modules_of(learner) if learned else {"network": learner.network}


def means_of(world, network, rest, scale, through_means):
    """Mean and number of the conditioning embeddings of each label."""
    found = {}
    owners = [label for label, _ in world.who(rest)] if len(rest) else []
    for label in set(owners):
        rows = torch.stack([x for x, owner in zip(rest, owners, strict=True) if owner == label])
        z = scale * network(rows)
        found[label] = ((z if through_means else z.detach()).mean(dim=0), len(rows))
    return found


def reference_loss(world, learner, batch, score):
    """-log p of the examples whose own class and another one are known: sum, mean, or means."""
    config, before = learner.config, learner.before
    scale = config.embedding_scale
    scale = before["scale"].log.exp() if scale == "learned" else scale
    # A learned scale reaches the means as well; only the network's part of them is held fixed.
    means = means_of(world, before["network"], learner.rest, 1.0, config.mean_gradient)
    means = {label: (scale * mean, n) for label, (mean, n) in means.items()}
    x, kinds = learner.step_of(batch)
    terms, new = [], []
    for i, (row, kind, (label, task)) in enumerate(zip(x, kinds, world.who(x), strict=True)):
        allowed = world.allowed(kind, task, learner.classes)
        known = {other: means[other] for other in allowed if other in means}
        if label in known and len(known) >= 2:
            z = scale * before["network"](row[None])[0]
            scores = score(z, known)
            terms.append(torch.stack(list(scores.values())).logsumexp(0) - scores[label])
            new.append(i < len(batch))
    if not terms:
        return None
    weights = {
        "sum": [1] * len(terms),
        "mean": [1 / len(terms)] * len(terms),
        "means": [1 / new.count(each) for each in new],
    }[config.reduction]
    return (torch.stack(terms) * torch.tensor(weights, dtype=torch.float64)).sum()


def linear_head(z, known):
    """With one variance for all classes: rows mean/s2 and biases -|mean|^2 / (2 s2)."""
    s2 = 1 + 1 / (sum(n for _, n in known.values()) / len(known))
    return {c: (z @ mean - mean @ mean / 2) / s2 for c, (mean, _) in known.items()}


def normal_densities(z, known):
    """With a variance for each class: the density of Eq. 8 as printed."""
    return {
        c: torch.distributions.Normal(mean, math.sqrt(1 + 1 / n)).log_prob(z).sum()
        for c, (mean, n) in known.items()
    }


SCORES = {"shared": linear_head, "per-class": normal_densities}


def assert_steps_are_right(world, assert_stepped, learner, rounds=2):
    for task, labels in zip(WINDOWS * rounds, LABELS * rounds, strict=True):
        batch = world.batch(labels, task)
        info = learner.learn(batch)
        loss = reference_loss(world, learner, batch, SCORES[learner.config.variance])
        if loss is None:
            loss = 0 * next(learner.before["network"].parameters()).sum()
        assert info.loss == pytest.approx(loss.item(), rel=1e-9, abs=1e-12)
        assert_stepped(trained_modules(learner), learner.before, loss, learner.config.lr)


def recorded(world, learner_class=Recorded, memory=11, classes=(), **fields):
    config = DeepCCG.Config(**{"lr": LR, "replay": 4, "embedding_scale": 2.0, **fields})
    return learner_class(world.network(), config, memory=memory, classes=classes)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"reduction": "sum"},
        {"reduction": "means"},
        {"variance": "per-class"},
        {"mean_gradient": True},
        {"mean_gradient": True, "variance": "per-class", "reduction": "sum"},
        {"embedding_scale": "learned", "initial_scale": 2.0},
        {"embedding_scale": "learned", "mean_gradient": True, "variance": "per-class"},
        {"replay_draw": "literal"},
        {"replay_sampling": "balanced"},
        {"selector": "lasso", "lasso_steps": 3},
        {"quota": "growing"},
        {"replay": 0},
    ],
    ids=lambda fields: "-".join(map(str, fields)) or "default",
)
def test_step_is_one_sgd_step_on_the_written_out_loss(world, assert_stepped, fields):
    """With fixed means that is the step of a fixed linear head with rows mean/s2.

    The reference conditions on all of M outside R, so it also shows that embedding only the
    classes that some mask allows gives the same posterior.
    """
    assert_steps_are_right(world, assert_stepped, recorded(world, **fields))


@pytest.mark.parametrize("train_mask", ["task", "seen", "all"])
@pytest.mark.parametrize("replay_mask", ["task", "seen", "all"])
def test_each_example_is_compared_under_its_own_mask(
    world, assert_stepped, train_mask, replay_mask
):
    learner = recorded(world, train_mask=train_mask, replay_mask=replay_mask, classes=(9, 1))
    assert_steps_are_right(world, assert_stepped, learner)


class ConditionsOnReplay(Recorded):
    """Wrong: R is part of what the posterior rests on, so that examples explain themselves."""

    def context_slots(self, mask, replay, reselected):
        return super().context_slots(mask, replay[:0], reselected)


class ComparesWithEveryClass(Recorded):
    """Wrong: denominators run over all classes whatever the task."""

    def masks(self, task_idx, replay):
        return torch.ones_like(super().masks(task_idx, replay))


class StepsTwice(Recorded):
    """Wrong: two steps on one batch."""

    def apply_gradients(self, gradients):
        super().apply_gradients(gradients)
        super().apply_gradients(gradients)


@pytest.mark.parametrize("wrong", [ConditionsOnReplay, ComparesWithEveryClass, StepsTwice])
def test_wrong_steps_are_told_apart(world, assert_stepped, wrong):
    with pytest.raises(AssertionError):
        assert_steps_are_right(world, assert_stepped, recorded(world, wrong))


def test_only_needed_classes_are_embedded(world):
    learner = recorded(world, memory=40, replay=0)
    passed = []
    learner.network.register_forward_pre_hook(lambda _, args: passed.append(len(args[0])))
    for task, labels in ((WINDOWS[0], LABELS[0]), (WINDOWS[2], LABELS[2])):
        learner.learn(world.batch(labels, task))
    stored = sum(label in (5, 6) for label, _ in world.who(learner.memory.x))
    passed.clear()
    learner.learn(world.batch([5, 6], WINDOWS[2]))
    assert sum(passed) == 2 + stored < 2 + learner.memory.size


def test_sum_with_a_step_divided_by_the_terms_is_the_mean(world):
    teacher = recorded(world)
    for task, labels in zip(WINDOWS, LABELS, strict=True):
        teacher.learn(world.batch(labels, task))
    state, batch = teacher.state_dict(), world.batch(LABELS[1], WINDOWS[1])
    terms = int(teacher.learn(batch).extra["terms"])
    assert terms > len(batch)
    summed = recorded(world, reduction="sum", lr=LR / terms)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other fields than the state's: that is the point
        summed.load_state_dict(state)
    summed.learn(batch)
    for ours, theirs in zip(summed.network.parameters(), teacher.network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-13)


def test_first_batch_of_a_task_takes_no_step_when_absent_classes_are_dropped(world):
    learner = recorded(world, replay=0)
    learner.learn(world.batch(LABELS[0], WINDOWS[0]))
    before = copy.deepcopy(learner.network.state_dict())
    info = learner.learn(world.batch(LABELS[2], WINDOWS[2]))
    assert (info.loss, info.extra["terms"]) == (0.0, 0)
    assert all(torch.equal(before[k], v) for k, v in learner.network.state_dict().items())
    assert {5, 6} <= {label for label, _ in world.who(learner.memory.x)}


def test_absent_classes_take_the_batchs_leave_one_out_means(world, assert_stepped):
    """First batch of a task, written out: each example is left out of its own class's mean."""
    learner = recorded(world, absent="batch", replay=0)
    learner.learn(world.batch(LABELS[0], WINDOWS[0]))
    batch = world.batch([5, 5, 6, 5, 6], WINDOWS[2])
    info = learner.learn(batch)
    network = learner.before["network"]
    terms = []
    for i, label in enumerate(batch.y.tolist()):
        known = {}
        for other in (5, 6):
            rows = [j for j, owner in enumerate(batch.y.tolist()) if owner == other and j != i]
            known[other] = (2 * network(batch.x[rows]).detach().mean(dim=0), len(rows))
        scores = linear_head(2 * network(batch.x[i : i + 1])[0], known)
        terms.append(torch.stack(list(scores.values())).logsumexp(0) - scores[label])
    loss = torch.stack(terms).mean()
    assert info.loss == pytest.approx(loss.item())
    assert_stepped(trained_modules(learner), learner.before, loss, LR)


def test_known_classes_keep_memorys_means_when_absent_ones_take_the_batchs(world):
    """Once memory knows every class, both settings do the same."""
    drop, batch = recorded(world), recorded(world, absent="batch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        drop.learn(first := world.batch([0, 1, 2, 0, 1, 2, 0, 1, 2], WINDOWS[0]))
        batch.load_state_dict(drop.state_dict())
    for _ in range(3):
        first = world.batch(LABELS[0], WINDOWS[0])
        assert drop.learn(first).loss == batch.learn(first).loss


def test_replay_and_rest_share_the_memory_between_them(world):
    learner = recorded(world)
    for task, labels in zip(WINDOWS * 4, LABELS * 4, strict=True):
        stored = set(world.numbers(learner.memory.x)) if learner.memory.size else set()
        classes = {world.log[number][0] for number in stored}
        info = learner.learn(world.batch(labels, task))
        if not stored:
            continue
        replay, rest = world.numbers(learner.replay), world.numbers(learner.rest)
        assert sorted(replay + rest) == sorted(stored)
        assert {label for label, _ in world.who(learner.rest)} == classes
        assert info.replayed == len(replay) <= min(4, len(stored) // 2)
        assert info.extra["returned"] + len(replay) == min(4, len(stored) // 2)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.randoms(use_true_random=False))
def test_give_back_leaves_one_of_every_class_and_no_more(labels, random):
    y = torch.tensor(labels)
    drawn = random.sample(range(len(labels)), random.randint(0, len(labels)))
    kept = keep_one_per_class(
        torch.tensor(drawn, dtype=torch.int64), y, Counter(y.tolist())
    ).tolist()
    assert set(kept) <= set(drawn)
    for label in set(labels):
        members = {slot for slot, owner in enumerate(labels) if owner == label}
        exhausted = members <= set(drawn)
        assert members - set(kept)
        assert len(members & set(drawn)) - len(members & set(kept)) == exhausted


@pytest.mark.parametrize("draw", [draw_uniform, draw_balanced])
def test_draws_are_without_replacement_and_never_more_than_there_is(draw):
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 0, 3, 0, 3])
    for count in range(8):
        slots = draw(y, count, generator).tolist()
        assert len(set(slots)) == len(slots) == min(count, 5)
    assert len(draw(y[:0], 3, generator)) == 0


def test_balanced_draw_takes_each_class_equally_often_first():
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0] * 9 + [1])
    for draw, expected in ((draw_uniform, 0.1), (draw_balanced, 0.5)):
        rare = sum(int(draw(y, 1, generator)[0]) == 9 for _ in range(2000)) / 2000
        assert rare == pytest.approx(expected, abs=4.5 * (0.25 / 2000) ** 0.5)


def test_learned_scale_moves_and_a_given_one_stays(world):
    learned = recorded(world, embedding_scale="learned", initial_scale=2.0)
    given_scale = recorded(world)
    for task, labels in zip(WINDOWS * 2, LABELS * 2, strict=True):
        batch = world.batch(labels, task)
        reported = learned.learn(batch).extra["scale"]
        assert given_scale.learn(batch).extra["scale"] == 2.0
        assert reported == pytest.approx(learned.before["scale"].log.exp().item())
    assert learned.log_scale.log.exp().item() != pytest.approx(2.0, abs=1e-4)


def test_fitted_scale_is_that_of_the_conditioning_set(world):
    learner = recorded(world, embedding_scale="fitted", replay=2)
    for _ in range(4):
        info = learner.learn(world.batch([0, 1, 2, 0, 1, 2], WINDOWS[0]))
    z = learner.before["network"](learner.rest).detach()
    y = torch.tensor([label for label, _ in world.who(learner.rest)])
    expected = fitted_scale(z, y, class_posterior(z, y, 3)).item()
    assert info.extra["scale"] == pytest.approx(expected) != pytest.approx(1.0)


def test_embeddings_that_are_not_finite_stop_the_run(world):
    learner = recorded(world)
    learner.learn(world.batch(LABELS[0], WINDOWS[0]))
    with torch.no_grad():
        learner.network.inner[0].weight.fill_(math.nan)
    with pytest.raises(Diverged, match="smaller lr"):
        learner.learn(world.batch(LABELS[0], WINDOWS[0]))
