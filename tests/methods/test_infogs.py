"""InfoGS: greedy replacement by surprise and learnability, computed afresh for each example."""

import numpy as np
import pytest
import torch

from deepccg.core import Task
from deepccg.gaussian.linear_regression import LinearModel
from deepccg.methods.infogs import InfoGS

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])


class LearnabilityWithoutThePoint(InfoGS):
    """Wrong: a new point is not learned before it is asked for."""

    def criterion(self, model):
        surprise = model.surprise()
        return surprise - self.config.learnability * surprise


class NeverRefreshed(InfoGS):
    """Wrong: a stored feature stays what it was when stored."""

    def refresh(self, x, replayed):  # noqa: ARG002
        return self.embed(x)


class Frozen(LinearModel):
    """Follows no replacement."""

    def removing(self, _):
        return self

    adding = removing


class FrozenModel(InfoGS):
    """Wrong: the model does not follow the replacements within a batch."""

    def model(self, features, y, known):
        return Frozen(**vars(super().model(features, y, known)))


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def log_density(phi, targets, known, i, noise, prior):
    """log p(t_i | targets of ``known``) with the posterior inverted directly."""
    precision = phi[known].T @ phi[known] / noise + np.eye(phi.shape[1]) / prior
    covariance = np.linalg.inv(precision)
    mean = phi[i] @ covariance @ phi[known].T @ targets[known] / noise
    variance = noise + phi[i] @ covariance @ phi[i]
    square = ((targets[i] - mean) ** 2).sum()
    return -0.5 * (targets.shape[1] * np.log(2 * np.pi * variance) + square / variance)


def greedy_owners(phi, targets, size, config):
    """Slots' owners after every new point has tried, each criterion from two inverses."""
    owner = list(range(size))

    def criterion(i):
        others = [j for j in owner if j != i]
        surprise = -log_density(phi, targets, others, i, config.noise, config.prior)
        learned = log_density(phi, targets, [*others, i], i, config.noise, config.prior)
        return surprise + config.learnability * learned

    for new in range(size, len(phi)):
        values = [criterion(i) for i in owner]
        if criterion(new) > min(values):
            owner[int(np.argmin(values))] = new
    return owner


def check_selection(learner_class, world):
    """The memory after each full step is what the loops above choose from the kept features."""
    config = learner_class.Config(lr=0.1, learnability=1.5, noise=0.2, prior=3.0)

    class Recorded(learner_class):
        def draw_replay(self):
            self.replayed = super().draw_replay()
            return self.replayed

    learner = Recorded(world.network(), config, memory=9)
    entered = 0
    for task, labels in zip((*WINDOWS, None) * 4, (*LABELS, [0, 4]) * 4, strict=True):
        batch = world.batch(labels, task)
        if learner.memory.size < 9:
            learner.learn(batch)
            continue
        stored, features = learner.memory.x.clone(), learner.memory["feature"].clone()
        learner.learn(batch)
        replayed = learner.replayed
        features[replayed] = learner.embed(stored[replayed])  # under the network after the step
        features = torch.cat([features, learner.embed(batch.x)])
        pool = torch.cat([stored, batch.x])
        seen = {label for label, _ in world.log}
        targets = np.array([[label == c for c in seen] for label, _ in world.who(pool)], float)
        owner = greedy_owners(features.numpy() / 3**0.5, targets, 9, config)
        assert world.numbers(learner.memory.x) == [world.numbers(pool)[i] for i in owner]
        torch.testing.assert_close(learner.memory["feature"], features[owner])
        entered += sum(i >= 9 for i in owner)
    assert entered > 10


def test_the_memory_is_the_greedy_choice(make_world):
    check_selection(InfoGS, make_world())


@pytest.mark.parametrize("wrong", [LearnabilityWithoutThePoint, NeverRefreshed, FrozenModel])
def test_wrong_choices_are_noticed(make_world, wrong):
    with pytest.raises(AssertionError):
        check_selection(wrong, make_world())


def test_classes_declared_but_never_seen_change_nothing(make_world):
    one, two = make_world(), make_world()
    learner = InfoGS(one.network(), memory=6, seed=1)
    declared = InfoGS(two.network(), memory=6, classes=(0, 1, 2, 3, 4, 8, 9), seed=1)
    for labels in LABELS * 4:
        learner.learn(one.batch(labels))
        declared.learn(two.batch(labels))
        seen = learner.model(learner.memory["feature"], learner.memory.y, learner.memory.size)
        assert seen.residuals.shape[1] == len(learner.classes)
        known = declared.model(declared.memory["feature"], declared.memory.y, declared.memory.size)
        assert known.residuals.shape == seen.residuals.shape


def test_features_are_stored_counted_and_resumed(world):
    learner = InfoGS(world.network(), memory=6)
    for labels in LABELS * 2:
        learner.learn(world.batch(labels))
    assert learner.memory_usage().bytes["feature"] == 6 * 3 * 8
    twin = InfoGS(world.network(1), memory=6)
    twin.load_state_dict(learner.state_dict())
    for labels in LABELS * 2:
        batch = world.batch(labels)
        assert learner.learn(batch) == twin.learn(batch)
    assert torch.equal(learner.memory["feature"], twin.memory["feature"])
