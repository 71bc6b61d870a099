"""PCR: proxies of the labels in the step, each as often as it occurs; cosines at prediction."""

import copy
import math

import pytest
import torch
from torch import nn

from deepccg.core import Batch, Task, make_generator
from deepccg.methods import pcr
from deepccg.methods.pcr import PCR, proxy_contrast

TASKS = (Task(0, (3, 4)), Task(1, (0, 1)), Task(2, (1, 2, 3)))
LABELS = ([3, 4, 4, 3], [0, 0, 0], [2, 3, 1, 2, 1])
STREAM = [*zip(TASKS, LABELS, strict=True), (None, [0, 4])] * 2


def anchor_by_anchor(z, proxies, labels, tau):
    """The loss from its definition; ``proxies`` by label."""

    def similarity(anchor, label):
        return torch.cosine_similarity(anchor, proxies[label], dim=0) / tau

    terms = []
    for anchor, label in zip(z, labels, strict=True):
        others = torch.stack([similarity(anchor, other).exp() for other in labels])
        terms.append(-(similarity(anchor, label).exp() / others.sum()).log())
    return torch.stack(terms)


def a_set(logits, y):
    """Wrong: each class present counts once."""
    present = torch.zeros(logits.shape[1], dtype=torch.bool).index_fill(0, y, True)
    every = logits.masked_fill(~present, -math.inf).logsumexp(dim=1)
    return every - logits.gather(1, y[:, None]).squeeze(1)


def all_classes(logits, y):
    """Wrong: a plain cross entropy over every output."""
    return nn.functional.cross_entropy(logits, y, reduction="none")


def without_itself(logits, y):
    """Wrong: an anchor's own label is left out of its denominator once."""
    times = torch.bincount(y, minlength=logits.shape[1]).expand(len(y), -1).clone()
    times[torch.arange(len(y)), y] -= 1
    every = (logits + times.to(logits).log()).logsumexp(dim=1)
    return every - logits.gather(1, y[:, None]).squeeze(1)


def check_step(world, assert_stepped, monkeypatch, loss):
    """The anchors are batch, replay and their views; the step is one of plain SGD."""
    monkeypatch.setattr(pcr, "proxy_contrast", loss)
    views = []

    def recorded(x, generator, *, mirror):
        assert mirror
        view = x + 0.1 * torch.randn(x.shape, generator=generator, dtype=x.dtype)
        views.append((x.clone(), view))
        return view

    monkeypatch.setattr(pcr, "second_view", recorded)
    config = PCR.Config(lr=0.05, replay=4, temperature=0.2)
    learner = PCR(world.network(), config, memory=7, classes=(0, 1, 2, 3, 4, 5))
    for task, labels in STREAM:
        now = {"network": learner.network, "head": learner.head}
        before, size = copy.deepcopy(now), learner.memory.size
        batch = world.batch(labels, task)
        info = learner.learn(batch)
        plain, view = views[-1]
        assert torch.equal(plain[: len(labels)], batch.x)
        assert len(plain) == len(labels) + min(4, size) == len(labels) + info.replayed
        names = [label for label, _ in world.who(plain)] * 2
        z = before["network"](torch.cat([plain, view]))
        proxies = dict(zip(learner.classes, before["head"].weight, strict=True))
        expected = anchor_by_anchor(z, proxies, names, tau=0.2).mean()
        assert info.loss == pytest.approx(expected.item(), rel=1e-9)
        assert_stepped(now, before, expected, lr=0.05)


def test_each_step_contrasts_anchors_with_all_labels_of_the_step(
    make_world, assert_stepped, monkeypatch
):
    check_step(make_world(), assert_stepped, monkeypatch, proxy_contrast)
    for wrong in (a_set, all_classes, without_itself):
        with pytest.raises(AssertionError):
            check_step(make_world(), assert_stepped, monkeypatch, wrong)


def test_a_class_that_is_absent_gets_no_gradient():
    logits = torch.randn(6, 5, generator=make_generator(0), requires_grad=True)
    y = torch.tensor([0, 3, 3, 0, 3, 0])
    (gradient,) = torch.autograd.grad(proxy_contrast(logits, y).mean(), logits)
    assert bool((gradient[:, [1, 2, 4]] == 0).all())
    assert bool((gradient[:, [0, 3]] != 0).all())


def test_it_learns_before_anything_is_stored(world):
    learner = PCR(world.network(), memory=9, classes=(0, 1))
    before = [p.detach().clone() for p in learner.trainable_parameters()]
    assert learner.learn(world.batch([0, 1, 1])).replayed == 0
    after = learner.trainable_parameters()
    assert not any(map(torch.equal, before, after))


def test_predictions_are_cosines_with_every_proxy_over_the_temperature(world):
    learner = PCR(world.network(), PCR.Config(temperature=0.3), memory=9)
    for _, labels in STREAM:
        batch = world.batch(labels)
        learner.learn(batch)
    z = learner.network(batch.x)
    expected = torch.cosine_similarity(z[:, None], learner.head.weight[None], dim=2) / 0.3
    torch.testing.assert_close(learner.predict_logits(batch.x), expected.detach())
    with torch.no_grad():
        learner.head.weight *= torch.rand(5, 1, dtype=torch.float64) + 0.5  # lengths say nothing
    torch.testing.assert_close(learner.predict_logits(batch.x), expected.detach())
    torch.testing.assert_close(learner.inference_module()(batch.x), expected.detach())


def test_a_head_that_grows_is_as_if_the_classes_had_been_declared(world):
    growing = PCR(world.network(), memory=9, seed=3)
    declared = PCR(world.network(), memory=9, seed=3, classes=(3, 4, 0, 2, 1))
    for _, labels in STREAM:
        batch = world.batch(labels)
        assert growing.learn(batch) == declared.learn(batch)
    assert torch.equal(growing.head.weight, declared.head.weight)
    assert list(growing.head.state_dict()) == ["weight"]


def test_images_are_seen_in_two_views_of_bytes():
    seen = []
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16, 4))
    network.dim = 4
    network.forward = lambda x: seen.append(x) or nn.Sequential.forward(network, x.float())
    learner = PCR(network, memory=5)
    x = torch.randint(256, (3, 3, 4, 4), generator=make_generator(0)).byte()
    learner.learn(Batch(x, torch.tensor([0, 1, 2])))
    learned = seen[-1]
    assert learned.dtype == torch.uint8
    assert torch.equal(learned[:3], x)
    assert not torch.equal(learned[3:], x)
