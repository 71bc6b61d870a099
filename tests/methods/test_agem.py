"""A-GEM: the step is the gradient, or its projection when earlier tasks would suffer."""

import copy
from collections import defaultdict

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from deepccg.core import Task
from deepccg.methods import SGD
from deepccg.methods.agem import AGEM, project

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])


class ProjectsAlways(AGEM):
    """Wrong: the component along the reference is removed even where it helps."""

    def constrain(self, gradient, reference):
        along = sum((g * r).sum() for g, r in zip(gradient, reference, strict=True))
        length = sum((r * r).sum() for r in reference)
        removed = [g - along / length * r for g, r in zip(gradient, reference, strict=True)]
        return removed, bool(along < 0)


class ProjectsEachTensor(AGEM):
    """Wrong: parameters are constrained one tensor at a time instead of together."""

    def constrain(self, gradient, reference):
        pairs = [project([g], [r]) for g, r in zip(gradient, reference, strict=True)]
        return [piece for (piece,), _ in pairs], project(gradient, reference)[1]


class ReferenceOfTheCurrentTask(AGEM):
    """Wrong: the batch's own task is part of the reference."""

    def draw_reference(self, task_idx):
        return super().draw_reference(torch.full_like(task_idx, -1))


def modules_of(learner):
    return {"network": learner.network, "head": learner.head}


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def recorded(learner_class):
    """Keeps what a step began with: the modules and the reference examples."""

    class Recorded(learner_class):
        def draw_reference(self, task_idx):
            self.before = copy.deepcopy(modules_of(self))
            slots = super().draw_reference(task_idx)
            self.reference = self.memory.x[slots]
            return slots

    return Recorded


def stream_of(world, rounds=4):
    """Two batches of each task, tasks coming back after a while."""
    for task, labels in zip(WINDOWS * rounds, LABELS * rounds, strict=True):
        yield world.batch(labels, task)
        yield world.batch(labels, task)


def flat_gradient(learner, world, x):
    """Of the mean cross entropy under each example's own task, one example at a time."""
    parameters = [p for module in learner.before.values() for p in module.parameters()]
    total = 0.0
    for row, (label, task) in zip(x, world.who(x), strict=True):
        logits = learner.before["head"](learner.before["network"](row[None]))[0]
        score = dict(zip(learner.classes, logits, strict=True))
        allowed = world.allowed("task", task, learner.classes)
        term = torch.stack([score[c] for c in allowed]).logsumexp(0) - score[label]
        pieces = torch.autograd.grad(term, parameters)
        total = total + torch.cat([piece.flatten() for piece in pieces])
    return total / len(x)


def check_step(learner_class, world):
    """Against flat gradients summed example by example; both kinds of step must occur."""
    config = learner_class.Config(lr=0.1, reference=5)
    learner = recorded(learner_class)(world.network(), config, memory=15)
    kinds = set()
    for batch in stream_of(world):
        info = learner.learn(batch)
        gradient = flat_gradient(learner, world, batch.x)
        violated = False
        if len(learner.reference):
            reference = flat_gradient(learner, world, learner.reference)
            violated = bool(gradient @ reference < 0)
            if violated:
                gradient = gradient - (gradient @ reference) / reference.square().sum() * reference
            kinds.add(violated)
        assert info.extra["violations"] == violated
        before = [p.detach().flatten() for m in learner.before.values() for p in m.parameters()]
        now = torch.cat([p.flatten() for p in parameters_of(learner)])
        expected = torch.cat(before) - 0.1 * gradient
        torch.testing.assert_close(now, expected, rtol=1e-9, atol=1e-12)
    assert kinds == {True, False}


def check_reference(learner_class, world):
    """Only examples of other tasks, as many as asked for where there are as many, none twice."""
    learner = recorded(learner_class)(world.network(), AGEM.Config(reference=4), memory=20)
    sizes = []
    for batch in stream_of(world):
        stored = world.who(learner.memory.x) if learner.memory.size else []
        others = sum(task != batch.task for _, task in stored)
        info = learner.learn(batch)
        sizes.append(len(learner.reference))
        assert info.replayed == len(learner.reference) == min(4, others)
        if sizes[-1]:
            assert batch.task not in {task for _, task in world.who(learner.reference)}
            numbers = world.numbers(learner.reference)
            assert len(set(numbers)) == len(numbers)
    assert sizes[:3] == [0, 0, 4]


def test_each_step_is_the_gradient_or_its_projection(make_world):
    check_step(AGEM, make_world())
    for wrong in (ProjectsAlways, ProjectsEachTensor):
        with pytest.raises(AssertionError):
            check_step(wrong, make_world())


def test_the_reference_is_of_other_tasks(make_world):
    check_reference(AGEM, make_world())
    with pytest.raises(AssertionError):
        check_reference(ReferenceOfTheCurrentTask, make_world())


def test_the_reference_may_be_drawn_from_all_of_memory(world):
    config = AGEM.Config(reference=50, reference_from="all")
    learner = recorded(AGEM)(world.network(), config, memory=20)
    for batch in stream_of(world):
        stored = learner.memory.x.clone()
        learner.learn(batch)
        if len(stored):
            assert sorted(world.numbers(learner.reference)) == sorted(world.numbers(stored))


pieces = st.lists(st.integers(1, 5), min_size=1, max_size=4)


@given(shapes=pieces, seed=st.integers(0, 10**6), scale=st.sampled_from([1e-18, 1.0, 1e12]))
def test_the_projection_in_single_precision(shapes, seed, scale):
    generator = torch.Generator().manual_seed(seed)
    g, r = ([torch.randn(n, 2, generator=generator) for n in shapes] for _ in range(2))
    r = [scale * piece for piece in r]
    result, changed = project(g, r)
    again, _ = project(result, r)
    g, r, result, again = (
        torch.cat([p.flatten() for p in v]).double() for v in (g, r, result, again)
    )
    tolerance = 1e-6 * float(g.norm() * r.norm())
    assert changed == bool(g @ r < 0)
    assert result @ r >= -tolerance
    assert result.norm() <= g.norm() * (1 + 1e-6)
    torch.testing.assert_close(again, result, rtol=0, atol=1e-6 * float(g.norm()))
    if not changed:
        assert torch.equal(result, g)


def test_the_projection_is_the_nearest_vector_that_does_not_oppose():
    """Against a general solver of ``min |v - g|`` subject to ``v . r >= 0``."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(10):
        g, r = torch.randn(2, 6, generator=generator, dtype=torch.float64)
        (found,), _ = project([g], [r])
        gradient, reference = g.numpy(), r.numpy()
        nearest = minimize(
            lambda v, g=gradient: ((v - g) ** 2).sum(),
            gradient,
            constraints={"type": "ineq", "fun": lambda v, r=reference: v @ r},
        )
        torch.testing.assert_close(found, torch.from_numpy(nearest.x), rtol=0, atol=1e-5)


def test_no_reference_gradient_means_no_change():
    g, zero = [torch.tensor([1.0, -2.0])], [torch.zeros(2)]
    assert project(g, zero) == (g, False)
    assert project(g, g) == (g, False)  # the batch never opposes itself


@pytest.mark.parametrize(
    ("fields", "memory", "tasks"),
    [
        ({}, 0, WINDOWS),
        ({"reference": 0}, 15, WINDOWS),
        ({}, 15, (Task(0, (0, 1, 2, 3, 4)),) * 3),
        ({}, 15, (None,) * 3),
    ],
    ids=["no-memory", "no-reference", "one-task", "open-task"],
)
def test_without_an_earlier_task_it_is_sgd_bit_for_bit(world, fields, memory, tasks):
    agem = AGEM(world.network(), AGEM.Config(**fields), memory=memory, seed=3)
    sgd = SGD(world.network(), seed=3)
    for task, labels in zip(tasks * 10, LABELS * 10, strict=True):
        batch = world.batch(labels, task)
        info = agem.learn(batch)
        assert info.loss == sgd.learn(batch).loss
        assert info.extra["violations"] == info.replayed == 0
    assert all(map(torch.equal, parameters_of(agem), parameters_of(sgd)))


@pytest.mark.parametrize("declared", [(), range(6)])
def test_memory_is_the_last_examples_of_each_class(world, declared):
    """Budget 13: shared by the classes known, the remainder to those that came first."""
    learner = AGEM(world.network(), memory=13, classes=declared)
    for batch in stream_of(world):
        learner.learn(batch)
        came = defaultdict(list)
        for number, (label, _) in enumerate(world.log):
            came[label].append(number)
        share, remainder = divmod(13, len(learner.classes))
        expected = set()
        for rank, label in enumerate(came):
            expected |= set(came[label][-(share + (rank < remainder)) :])
        memory = learner.memory
        assert sorted(world.numbers(memory.x)) == sorted(expected)
        tasks = [learner.class_table.tasks[row - 1][0] for row in memory.task.tolist()]
        labels = [learner.classes[column] for column in memory.y.tolist()]
        known = [(label, task.id) for label, task in world.who(memory.x)]
        assert list(zip(labels, tasks, strict=True)) == known
