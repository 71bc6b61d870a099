"""ProtoCL's step, predictions and coreset, against densities written out example by example."""

import copy
from collections import Counter

import pytest
import torch
from torch.distributions import Normal

from deepccg.core import Task
from deepccg.methods import DeepCCG
from deepccg.methods.protocl import ProtoCL
from deepccg.networks import Flatten

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (5, 6)), None)
LABELS = ([0, 1, 2, 1, 0, 1], [1, 2, 3, 3, 2, 1], [5, 6, 5, 5], [0, 3, 6, 5])


def modules_of(learner):
    return {"network": learner.network, "noise": learner.noise}


def trained_modules(learner):
    learned = learner.config.noise == "learned"
    return modules_of(learner) if learned else {"network": learner.network}


def recorded(learner_class):
    """Keeps what a step began with: the modules, R, and the rest of memory."""

    class Recorded(learner_class):
        def sample_replay(self):
            self.before = copy.deepcopy(modules_of(self))
            drawn = super().sample_replay()
            outside = torch.ones(self.memory.size, dtype=torch.bool)
            outside[drawn.slots] = False
            self.replay, self.rest = self.memory.x[drawn.slots], self.memory.x[outside]
            return drawn

    return Recorded


def log_joint(config, z, own, noise, count):
    """Log of (a + n_c) N(z; m_c, v_c + s) given a class's embeddings ``own``, by precisions."""
    precision = 1 / config.prior_variance + len(own) / noise
    pull = config.prior_mean / config.prior_variance
    mean = (pull + (sum(own) / noise if own else 0)) / precision
    share = torch.log(torch.tensor(config.prior_count + count, dtype=z.dtype))
    return share + Normal(mean, (1 / precision + noise).sqrt()).log_prob(z).sum()


def reference_loss(world, learner, batch):
    """Mean of -log p over batch and replay; of what a step scores, nothing is known to it."""
    config, network = learner.config, learner.before["network"]
    noise = learner.before["noise"].log.exp()
    x = torch.cat([batch.x, learner.replay]) if len(learner.replay) else batch.x
    kinds = [config.train_mask] * len(batch) + [config.replay_mask] * len(learner.replay)
    counts = Counter(label for label, _ in world.log)
    counts.subtract(label for label, _ in world.who(x))
    own = {label: [] for label in learner.classes}
    if len(learner.rest):
        for row, (label, _) in zip(learner.rest, world.who(learner.rest), strict=True):
            z = network(row[None])[0]
            own[label].append(z if config.mean_gradient else z.detach())
    terms = []
    for row, kind, (label, task) in zip(x, kinds, world.who(x), strict=True):
        z = network(row[None])[0]
        allowed = world.allowed(kind, task, learner.classes)
        scores = {c: log_joint(config, z, own[c], noise, counts[c]) for c in allowed}
        if len(allowed) > 1:
            terms.append(torch.stack(list(scores.values())).logsumexp(0) - scores[label])
    return torch.stack(terms).mean()


def check_steps(learner_class, world, assert_stepped, **fields):
    config = ProtoCL.Config(**{"lr": 0.05, "replay": 4, "initial_noise": 0.6, **fields})
    learner = recorded(learner_class)(world.network(), config, memory=11, classes=(9,))
    for task, labels in zip(WINDOWS * 2, LABELS * 2, strict=True):
        batch = world.batch(labels, task)
        info = learner.learn(batch)
        loss = reference_loss(world, learner, batch)
        assert info.loss == pytest.approx(loss.item(), rel=1e-9)
        assert_stepped(trained_modules(learner), learner.before, loss, lr=0.05)
        noise = learner.before["noise"].log.exp().mean().item()
        assert info.extra["noise"] == pytest.approx(noise)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"replay_mask": "seen"},
        {"train_mask": "all", "replay_mask": "all"},
        {"mean_gradient": True},
        {"noise": "fixed"},
        {"prior_mean": 0.4, "prior_variance": 7.0, "prior_count": 3.0},
        {"selector": "random", "quota": "growing"},
        {"replay": 0},
    ],
    ids=lambda fields: "-".join(map(str, fields)) or "default",
)
def test_step_is_one_sgd_step_on_the_written_out_loss(world, assert_stepped, fields):
    check_steps(ProtoCL, world, assert_stepped, **fields)


class WithoutCounts(ProtoCL):
    """Wrong: every class is taken to be equally common."""

    def condition(self, context, scored):
        found = super().condition(context, scored)
        return found._replace(log_share=torch.zeros_like(found.log_share))


class CountsTheStep(ProtoCL):
    """Wrong: an example's own label is counted before it is scored."""

    def condition(self, context, scored):
        return super().condition(context, scored[:0])


class ConditionsOnReplay(ProtoCL):
    """Wrong: replayed examples are among what the prototypes rest on, and explain themselves."""

    def context_slots(self, mask, replay):
        return super().context_slots(mask, replay[:0])


class ForgetsTheUncertainty(ProtoCL):
    """Wrong: prototypes are taken for certain."""

    def condition(self, context, scored):
        found = super().condition(context, scored)
        certain = torch.zeros_like(found.prototypes.variance)
        return found._replace(prototypes=type(found.prototypes)(found.prototypes.mean, certain))


class NoiseThatStays(ProtoCL):
    """Wrong: the noise is not trained."""

    def trainable_modules(self):
        return [self.network]


WRONG = [WithoutCounts, CountsTheStep, ConditionsOnReplay, ForgetsTheUncertainty, NoiseThatStays]


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_steps_are_told_apart(world, assert_stepped, wrong):
    with pytest.raises(AssertionError):
        check_steps(wrong, world, assert_stepped)


def check_predictions(learner_class, world):
    """Of all of memory under the present network and the present counts, whatever came before."""
    learner = learner_class(world.network(), ProtoCL.Config(replay=4), memory=9)
    for task, labels in zip(WINDOWS * 2, LABELS * 2, strict=True):
        learner.learn(world.batch(labels, task))
        counts = Counter(label for label, _ in world.log)
        probe = world.batch([0, 1, 5])
        del world.log[-3:]  # only looked at, never learned
        with torch.no_grad():
            noise = learner.noise.log.exp()
            z, held = learner.network(probe.x), learner.network(learner.memory.x)
        owners = [label for label, _ in world.who(learner.memory.x)]
        for asked in (None, task):
            allowed = sorted(world.allowed("task", asked, learner.classes) & set(counts))
            found = learner.predict_proba(probe.x, asked)
            for row, probability in zip(z, found, strict=True):
                scores = [
                    log_joint(
                        learner.config,
                        row,
                        [h for h, owner in zip(held, owners, strict=True) if owner == c],
                        noise,
                        counts[c],
                    )
                    for c in allowed
                ]
                expected = torch.softmax(torch.stack(scores), dim=0)
                columns = [learner.classes.index(c) for c in allowed]
                torch.testing.assert_close(probability[columns], expected)
                assert probability.sum().item() == pytest.approx(1)


def test_predictions_are_the_posterior_predictive(world):
    check_predictions(ProtoCL, world)


@pytest.mark.parametrize("wrong", [WithoutCounts, ForgetsTheUncertainty])
def test_wrong_predictions_are_told_apart(world, wrong):
    with pytest.raises(AssertionError):
        check_predictions(wrong, world)


def test_flat_prior_unit_noise_and_uniform_counts_give_deepccg(world):
    """Thirty steps of sums: terms of classes never seen are constants in one, absent in the other.

    A large Dirichlet prior makes the counts uniform, a large variance makes the prior flat.
    """
    shared = {"lr": 0.02, "replay": 4, "reduction": "sum", "replay_mask": "task"}
    flat = {"prior_variance": 1e9, "prior_count": 1e12, "noise": "fixed", "initial_noise": 1.0}
    ours = ProtoCL(world.network(), ProtoCL.Config(**shared, **flat), memory=14, seed=2)
    printed = {"variance": "per-class", "embedding_scale": 1.0, "selector": "reservoir"}
    theirs = DeepCCG(world.network(), DeepCCG.Config(**shared, **printed), memory=14, seed=2)
    tasks = (Task(0, (0, 1, 2)), Task(1, (3, 4)), Task(2, (5, 6)))
    for step in range(30):
        task = tasks[step // 10]
        batch = world.batch([*task.classes, *task.classes, task.classes[step % 2]], task)
        ours.learn(batch)
        theirs.learn(batch)
        assert torch.equal(ours.memory.x, theirs.memory.x)
        proba = theirs.predict_proba(batch.x, task)
        torch.testing.assert_close(ours.predict_proba(batch.x, task), proba, rtol=1e-5, atol=1e-9)
    moved = 0.0
    for mine, other, start in zip(
        ours.network.parameters(),
        theirs.network.parameters(),
        world.network().parameters(),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-8)
        moved += float((mine - start).detach().norm())
    assert moved > 0.1


def test_coreset_is_a_reservoir_for_each_class(world):
    """Slot for slot that of DeepCCG with the same selector, on an embedding that stays."""
    ours = ProtoCL(Flatten(5), ProtoCL.Config(replay=0, noise="fixed"), memory=9)
    theirs = DeepCCG(Flatten(5), DeepCCG.Config(replay=0, selector="reservoir"), memory=9)
    for task, labels in zip(WINDOWS * 4, LABELS * 4, strict=True):
        batch = world.batch(labels, task)
        ours.learn(batch)
        theirs.learn(batch)
        for name in ("x", "y", "task"):
            assert torch.equal(ours.memory[name], theirs.memory[name])
    stored = Counter(label for label, _ in world.who(ours.memory.x))
    assert sorted(stored.values()) == [1, 1, 1, 2, 2, 2]


def test_without_memory_predictions_are_the_class_shares(world):
    learner = ProtoCL(world.network(), ProtoCL.Config(prior_count=0.5), memory=0)
    learner.learn(world.batch([3, 3, 3, 8]))
    proba = learner.predict_proba(world.batch([3, 8]).x)
    expected = torch.tensor([[3.5, 1.5]] * 2, dtype=torch.float64) / 5
    torch.testing.assert_close(proba, expected)


def test_noise_is_learned_by_dimension_or_stays(world):
    learned = ProtoCL(world.network(), ProtoCL.Config(initial_noise=2.0), memory=9)
    fixed = ProtoCL(world.network(), ProtoCL.Config(initial_noise=2.0, noise="fixed"), memory=9)
    for task, labels in zip(WINDOWS * 2, LABELS * 2, strict=True):
        batch = world.batch(labels, task)
        learned.learn(batch)
        fixed.learn(batch)
    moved = learned.noise.log.exp().detach()
    assert len(moved.unique()) == len(moved)
    assert bool(((moved - 2).abs() > 1e-5).all())
    torch.testing.assert_close(fixed.noise.log.exp().detach(), torch.full_like(moved, 2.0))
