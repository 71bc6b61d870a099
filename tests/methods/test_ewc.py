"""EWC: what its Fisher is, where the penalty pulls, and how a step follows it."""

import pytest
import torch
from torch import nn
from torch.func import functional_call

from deepccg.core import Diverged, InputError, Task
from deepccg.methods.ewc import CHUNK, EWC
from deepccg.methods.sgd import SGD

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)), Task(3, (3, 4, 5)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3], [5, 3, 4, 4])
LR, STRENGTH = 0.05, 3.0


class Double(nn.Module):
    """The input itself, in double precision: only the head is trained."""

    def __init__(self, dim):
        super().__init__()
        self.dim = dim
        self.one = nn.Parameter(torch.ones((), dtype=torch.float64), requires_grad=False)

    def forward(self, x):
        return x * self.one


def windows(world, batches=3):
    """The stream of overlapping windows: of each some batches, of different sizes."""
    for task, labels in zip(WINDOWS, LABELS, strict=True):
        for skipped in range(batches):
            yield world.batch(labels[skipped:] or labels, task)


def parameters_of(learner):
    return [p.detach().clone() for p in learner.trainable_parameters()]


def recorded(learner_class):
    """The same learner, which keeps the parameters a step began with."""

    class Recorded(learner_class):
        def differentiate(self, x, y, mask):
            self.before = parameters_of(self)
            return super().differentiate(x, y, mask)

    return Recorded


def padded(tensor, like):
    """With zeros for the rows that came later."""
    missing = torch.zeros(len(like) - len(tensor), *tensor.shape[1:], dtype=tensor.dtype)
    return torch.cat([tensor, missing])


def assert_all_close(ours, expected, **tolerance):
    for one, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(one, other, **tolerance)


class SquaredMean(EWC):
    """The classic mistake: the square of the batch's mean gradient, not the mean of squares."""

    def squares(self, each):
        return [len(gradients) * gradients.mean(dim=0).square() for gradients in each]


class PenaltyInFisher(EWC):
    """Another one: the Fisher of the loss together with its penalty."""

    def squares(self, each):
        pulls = zip(each, self.penalty_gradients(), strict=True)
        return super().squares([gradients + pull for gradients, pull in pulls])


def check_fisher_of_linear_softmax(learner_class, world):
    """The closed form: mean_i (p_i - e_{y_i})^2 x_i^2, at the parameters each batch met."""
    learner = recorded(learner_class)(Double(5), EWC.Config(lr=LR, strength=STRENGTH))
    terms = {task.id: [] for task in WINDOWS}
    for batch in windows(world):
        learner.learn(batch)
        weight, bias = learner.before
        allowed = list(batch.task.classes)  # here a class's column is its label
        error = torch.zeros(len(batch), 6, dtype=torch.float64)
        error[:, allowed] = torch.softmax(batch.x @ weight[allowed].T + bias[allowed], dim=1)
        error[torch.arange(len(batch)), batch.y] -= 1
        ones = torch.ones(len(batch), 1, dtype=torch.float64)
        inputs = torch.cat([batch.x, ones], dim=1)
        terms[batch.task.id].append((error[:, :, None] * inputs[:, None, :]).square())
    tasks = [torch.cat(terms[task.id]).mean(dim=0) for task in WINDOWS[:-1]]  # the last is open
    expected = torch.stack(tasks).sum(dim=0)
    assert_all_close(learner.past.fisher, [expected[:, :-1], expected[:, -1]])


def test_fisher_is_the_closed_form_of_a_linear_softmax(make_world):
    check_fisher_of_linear_softmax(EWC, make_world())
    for wrong in (SquaredMean, PenaltyInFisher):
        with pytest.raises(AssertionError):
            check_fisher_of_linear_softmax(wrong, make_world())


class WithoutHalf(EWC):
    """Without the factor 1/2 in the penalty: every pull is twice as strong."""

    def penalty_gradients(self):
        return [2 * gradient for gradient in super().penalty_gradients()]


class DecayingFisher(EWC):
    """Forgets the older penalties."""

    def finish_task(self):
        for fisher in self.past.fisher:
            fisher *= 0.5
        super().finish_task()


def example_gradients(learner, batch, parameters):
    """The gradient of each example's cross entropy over its task's classes, one by one."""
    names = [name for name, _ in learner.network.named_parameters()]
    for x, label in zip(batch.x, batch.y.tolist(), strict=True):
        values = [p.clone().requires_grad_() for p in parameters]
        network = dict(zip(names, values[:-2], strict=True))
        z = functional_call(learner.network, network, x[None])[0]
        logits = values[-2] @ z + values[-1]
        loss = logits[list(batch.task.classes)].logsumexp(0) - logits[label]
        yield torch.autograd.grad(loss, values)


def check_every_step(learner_class, world, centre, update):
    """Against one penalty for each finished task (or their last centre), written out."""
    config = EWC.Config(lr=LR, strength=STRENGTH, centre=centre, update=update)
    learner = recorded(learner_class)(world.network(), config)
    finished, squares, task = [], [], None
    for batch in windows(world):
        if task not in (None, batch.task):
            fisher = [torch.stack(terms).mean(dim=0) for terms in zip(*squares, strict=True)]
            finished.append((fisher, parameters_of(learner)))
            squares = []
        task = batch.task
        info = learner.learn(batch)
        each = list(example_gradients(learner, batch, learner.before))
        squares += [[g.square() for g in gradients] for gradients in each]
        penalty = 0.0
        for i, (before, after) in enumerate(
            zip(learner.before, parameters_of(learner), strict=True)
        ):
            gradient = torch.stack([gradients[i] for gradients in each]).mean(dim=0)
            past = [(padded(f[i], before), padded(theta[i], before)) for f, theta in finished]
            if centre == "last" and past:
                past = [(fisher, past[-1][1]) for fisher, _ in past]
            weight = sum((fisher for fisher, _ in past), torch.zeros_like(before))
            pull = sum((fisher * theta for fisher, theta in past), torch.zeros_like(before))
            if update == "explicit":
                expected = before - LR * (gradient + STRENGTH * (weight * before - pull))
            else:  # the minimum of penalty + |theta - theta'|^2 / (2 lr)
                descended = before - LR * gradient
                expected = (descended + LR * STRENGTH * pull) / (1 + LR * STRENGTH * weight)
            torch.testing.assert_close(after, expected, rtol=1e-9, atol=1e-11)
            if centre == "last":
                penalty += sum(
                    STRENGTH / 2 * (fisher * (before - theta) ** 2).sum() for fisher, theta in past
                )
        if centre == "last":
            assert info.extra["penalty"] == pytest.approx(float(penalty), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("centre", ["last", "average"])
@pytest.mark.parametrize("update", ["proximal", "explicit"])
def test_every_step_descends_loss_and_penalties(make_world, centre, update):
    check_every_step(EWC, make_world(), centre, update)
    wrong = [SquaredMean, PenaltyInFisher, DecayingFisher]
    for learner_class in [*wrong, *([WithoutHalf] if update == "explicit" else [])]:
        with pytest.raises(AssertionError):
            check_every_step(learner_class, make_world(), centre, update)


def test_the_penalty_is_exactly_zero_when_a_task_begins(world):
    learner = EWC(world.network(), EWC.Config(lr=LR))
    previous, penalties = None, []
    for batch in windows(world):
        info = learner.learn(batch)
        if previous != batch.task.id:
            assert info.extra["penalty"] == 0.0
            assert info.loss > 0
        else:
            penalties.append(info.extra["penalty"])
        previous = batch.task.id
    assert penalties[:2] == [0.0, 0.0]  # the first task
    assert min(penalties[2:]) > 0


def test_fisher_never_falls_and_is_zero_for_classes_outside_the_task(world):
    learner = EWC(world.network(), EWC.Config(lr=LR))
    previous = [torch.zeros_like(f) for f in learner.past.fisher]
    task = None
    for batch in windows(world):
        learner.learn(batch)
        fisher = learner.past.fisher
        assert all(bool((f >= 0).all()) for f in fisher)
        growth = [now - padded(f, now) for now, f in zip(fisher, previous, strict=True)]
        assert min(float(g.min()) for g in growth) >= 0
        if task not in (None, batch.task):
            touched = growth[-2].sum(dim=1) > 0
            assert {c for c, hit in enumerate(touched.tolist()) if hit} == set(task.classes)
        previous, task = [f.clone() for f in fisher], batch.task


@pytest.mark.parametrize("update", ["proximal", "explicit"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_without_strength_it_is_sgd(world, update, reduction):
    config = EWC.Config(lr=0.02, strength=0.0, update=update, reduction=reduction)
    ewc, sgd = (
        EWC(world.network(), config, seed=3),
        SGD(world.network(), SGD.Config(lr=0.02, reduction=reduction), seed=3),
    )
    for _ in range(3):
        for batch in windows(world):
            assert ewc.learn(batch).loss == pytest.approx(sgd.learn(batch).loss, rel=1e-5)
    assert ewc.steps == 36
    assert_all_close(parameters_of(ewc), parameters_of(sgd), rtol=1e-5, atol=1e-12)


def test_without_tasks_it_is_sgd(world):
    ewc, sgd = EWC(world.network(), seed=3), SGD(world.network(), seed=3)
    for step in range(10):
        batch = world.batch(LABELS[step % 4])
        assert ewc.learn(batch).extra == {"penalty": 0.0, "stiff": 0.0}
        sgd.learn(batch)
    assert_all_close(parameters_of(ewc), parameters_of(sgd), rtol=1e-9, atol=1e-12)


def test_a_large_batch_is_split_and_still_one_step(world):
    ewc, sgd = EWC(world.network()), SGD(world.network())
    batch = world.batch([0, 1, 2] * CHUNK, WINDOWS[0])
    ewc.learn(batch)
    sgd.learn(batch)
    assert ewc.past.examples == len(batch)
    assert_all_close(parameters_of(ewc), parameters_of(sgd), rtol=1e-9, atol=1e-12)


def test_a_stiff_penalty_holds_proximally_and_diverges_explicitly(make_world):
    """Parameters the past needs stay where they were; the share of stiff ones is reported."""
    world = make_world()
    held = EWC(world.network(), EWC.Config(lr=LR, strength=1e12), classes=range(6))
    stream = list(windows(world))
    for batch in stream:
        info = held.learn(batch)
        if batch.task.id == 0:
            centre = parameters_of(held)
    pairs = list(zip(centre, parameters_of(held), held.past.fisher, strict=True))
    stiff = [LR * 1e12 * fisher > 2 for _, _, fisher in pairs]
    total = sum(s.numel() for s in stiff)
    assert info.extra["stiff"] == pytest.approx(sum(int(s.sum()) for s in stiff) / total)
    assert 0.5 < info.extra["stiff"] < 1
    for first, now, _ in pairs[:-2]:  # the network; the head's rows are of later tasks, too
        torch.testing.assert_close(now, first, rtol=0, atol=1e-6)
    explicit = EWC(make_world().network(), EWC.Config(lr=LR, strength=1e12, update="explicit"))
    with pytest.raises(Diverged):
        list(map(explicit.learn, stream * 20))


def test_it_tells_what_it_holds(world):
    learner = EWC(world.network(), classes=range(6))
    size = 8 * sum(p.numel() for p in learner.trainable_parameters())
    kinds = {"examples": 0, "fisher": 2 * size, "centre": size, "derived": 3 * size}
    assert learner.memory_usage().bytes == kinds
    for batch in windows(world):
        learner.learn(batch)
    assert learner.memory_usage().bytes == kinds


def test_batch_normalisation_is_refused():
    network = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    network.dim = 3
    with pytest.raises(InputError, match="batch normalisation couples"):
        EWC(network)
