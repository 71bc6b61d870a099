"""SCR: the contrastive loss row by row, and means of stored examples without the projector."""

import copy

import pytest
import torch
import torch.nn.functional as F

from deepccg.core import Task, make_generator
from deepccg.learners.nearest_mean import ClassMeans
from deepccg.methods import scr
from deepccg.methods.scr import SCR, supervised_contrast

STREAM = [[3, 4, 4, 3], [0, 0, 0], [2, 3, 1, 2, 1], [0, 4]] * 2


def row_by_row(u, labels, tau):
    """The loss from its definition."""
    terms = []
    for i, anchor in enumerate(u):
        others = [a for a in range(len(u)) if a != i]
        every = torch.stack([(anchor @ u[a] / tau).exp() for a in others]).sum()
        partners = [p for p in others if labels[p] == labels[i]]
        logs = [((anchor @ u[p] / tau).exp() / every).log() for p in partners]
        terms.append(-torch.stack(logs).mean())
    return torch.stack(terms)


def with_itself(u, y, temperature):
    """Wrong: a row is compared with itself."""
    partner = (y[:, None] == y) & ~torch.eye(len(y), dtype=torch.bool)
    terms = (u @ u.T / temperature).log_softmax(dim=1).masked_fill(~partner, 0)
    return -terms.sum(dim=1) / partner.sum(dim=1)


def mean_inside(u, y, temperature):
    """Wrong: the logarithm of the partners' mean probability."""
    itself = torch.eye(len(y), dtype=torch.bool)
    partner = (y[:, None] == y) & ~itself
    logs = (u @ u.T / temperature).masked_fill(itself, -torch.inf).log_softmax(dim=1)
    mean = logs.masked_fill(~partner, -torch.inf).logsumexp(dim=1)
    return partner.sum(dim=1).to(u).log() - mean


def check_step(world, assert_stepped, monkeypatch, loss, learner_class=SCR):
    monkeypatch.setattr(scr, "supervised_contrast", loss)
    views = []

    def recorded(x, generator, *, mirror):
        assert mirror
        view = x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)
        views.append((x.clone(), view))
        return view

    monkeypatch.setattr(scr, "second_view", recorded)
    config = SCR.Config(lr=0.05, replay=6, temperature=0.3)
    learner = learner_class(world.network(), config, memory=9)
    for step, labels in enumerate(STREAM):
        now = {"network": learner.network, "projector": learner.projector}
        before, size = copy.deepcopy(now), learner.memory.size
        batch = world.batch(labels, Task(step, tuple(sorted(set(labels)))))
        info = learner.learn(batch)
        plain, view = views[-1]
        assert torch.equal(plain[: len(labels)], batch.x)
        assert len(plain) == len(labels) + min(6, size) == len(labels) + info.replayed
        names = [label for label, _ in world.who(plain)] * 2
        projected = before["projector"](before["network"](torch.cat([plain, view])))
        u = projected / projected.norm(dim=1, keepdim=True)
        expected = row_by_row(u, names, tau=0.3).mean()
        assert info.loss == pytest.approx(expected.item(), rel=1e-9)
        assert_stepped(now, before, expected, lr=0.05)


class NotOfLengthOne(SCR):
    """Wrong: projections of any length are compared."""

    def project(self, x):
        return self.projector(self.network(x))


def test_each_step_is_one_on_the_contrastive_loss(make_world, assert_stepped, monkeypatch):
    check_step(make_world(), assert_stepped, monkeypatch, supervised_contrast)
    for wrong in (with_itself, mean_inside):
        with pytest.raises(AssertionError):
            check_step(make_world(), assert_stepped, monkeypatch, wrong)
    with pytest.raises(AssertionError):
        check_step(make_world(), assert_stepped, monkeypatch, supervised_contrast, NotOfLengthOne)


def test_it_learns_before_anything_is_stored(world):
    learner = SCR(world.network(), memory=9)
    before = [p.detach().clone() for p in learner.trainable_parameters()]
    assert learner.learn(world.batch([0, 1, 1])).replayed == 0
    assert not all(map(torch.equal, before, learner.trainable_parameters()))


def test_one_example_alone_teaches_nothing(world):
    learner = SCR(world.network(), memory=9)
    assert learner.learn(world.batch([0])).loss == 0


# Predictions


class Projected(SCR):
    """Wrong: classes are means of projections."""

    def embed(self, x):
        return self.projector(super().embed(x))


class Raw(SCR):
    """Wrong: embeddings are averaged before they have length one."""

    def means(self):
        found = self.embed(self.memory.x)
        own = [found[self.memory.y == c].mean(dim=0) for c in range(len(self.class_table))]
        return ClassMeans(F.normalize(torch.stack(own), dim=1), torch.ones(len(own)) > 0)


class Stale(SCR):
    """Wrong: means once computed are kept while the network moves."""

    def learn(self, batch):
        kept = self._means
        info = super().learn(batch)
        self._means = kept
        return info


def check_predictions(learner_class, world):
    learner = learner_class(world.network(), SCR.Config(lr=0.5), memory=25, seed=2)
    for labels in STREAM:
        batch = world.batch(labels)
        learner.learn(batch)
        with torch.no_grad():
            stored, asked = learner.network(learner.memory.x), learner.network(batch.x)
        names = [label for label, _ in world.who(learner.memory.x)]
        for row, found in zip(asked, learner.predict_logits(batch.x), strict=True):
            for label, score in zip(learner.classes, found.tolist(), strict=True):
                own = [z / z.norm() for z, name in zip(stored, names, strict=True) if name == label]
                mean = torch.stack(own).mean(dim=0)
                apart = row / row.norm() - mean / mean.norm()
                assert score == pytest.approx(-apart.square().sum().item(), abs=1e-9)


def test_classes_are_means_of_unit_length_embeddings(make_world):
    check_predictions(SCR, make_world())
    for wrong in (Projected, Raw, Stale):
        with pytest.raises((AssertionError, RuntimeError)):
            check_predictions(wrong, make_world())


def test_a_class_without_a_stored_example_is_never_predicted(world):
    learner = SCR(world.network(), memory=3, seed=0)
    for _ in range(10):
        for label in range(6):
            learner.learn(world.batch([label]))
    held = {learner.classes[column] for column in learner.memory.y.tolist()}
    assert 0 < len(held) <= 3
    x = torch.randn(500, 5, generator=make_generator(0), dtype=torch.float64)
    assert set(learner.predict(x).tolist()) <= held
    missing = min(set(range(6)) - held)
    assert bool((learner.predict_logits(x)[:, learner.classes.index(missing)] == -torch.inf).all())
    some = min(held)
    assert set(learner.predict(x, Task(0, (some, missing))).tolist()) == {some}
    module = learner.inference_module()
    torch.testing.assert_close(
        module(x).log_softmax(dim=1), learner.predict_logits(x).log_softmax(dim=1)
    )


def test_the_projector_is_drawn_from_the_seed_and_declared(world):
    one, other = (SCR(world.network(), memory=3, seed=0) for _ in range(2))
    another = SCR(world.network(), memory=3, seed=1)
    weights = [learner.projector[0].weight for learner in (one, other, another)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert one.memory_usage().bytes["projector"] == 8 * (3 * 3 + 3 + 3 * 128 + 128)
