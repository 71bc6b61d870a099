"""ER-ACE: the batch sees its task only, the replay all classes seen; otherwise it is ER."""

import copy

import pytest
import torch

from deepccg.core import Task
from deepccg.methods import ER, SGD
from deepccg.methods.er_ace import ERACE

# Declared in order, met in another: 3, 4, then 0, 1, then 1, 2, 3; label 5 never comes.
DECLARED = (0, 1, 2, 3, 4, 5)
TASKS = (Task(0, (3, 4)), Task(1, (0, 1)), Task(2, (1, 2, 3)))
LABELS = ([3, 4, 4, 3], [0, 1, 0], [2, 3, 1, 2, 1])


class OwnTaskReplay(ERACE):
    """Wrong: replayed examples are compared with their own task, as in ER."""

    def masks(self, task_idx, replay):
        own = self.class_table.mask("task", torch.cat([task_idx, self.memory.task[replay]]))
        return own.to(self.device)


class SliceFromMax(ERACE):
    """Wrong: every column from the largest one seen is taken for a class still to come."""

    def masks(self, task_idx, replay):
        masks = super().masks(task_idx, replay)
        masks[: len(task_idx), int(self.class_table.seen.nonzero().max()) :] = True
        return masks


def modules_of(learner):
    return {"network": learner.network, "head": learner.head}


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def head_rows_touched(learner, loss):
    """Largest gradient of the loss in each row of the head, bias included, by label."""
    weight, bias = torch.autograd.grad(
        loss, [learner.head.weight, learner.head.bias], retain_graph=True
    )
    largest = torch.maximum(weight.abs().amax(dim=1), bias.abs())
    return dict(zip(learner.classes, largest.tolist(), strict=True))


def check_which_rows_are_touched(learner_class, world):
    """Stream term: exactly nothing outside the task. Replay term: all seen, nothing unseen."""
    learner = learner_class(world.network(), memory=20, classes=DECLARED)
    for task, labels in zip(TASKS, LABELS, strict=True):
        batch = world.batch(labels, task)
        seen = {label for label, _ in world.log}
        stored = torch.arange(learner.memory.size)
        x, y, task_idx = learner.begin_step(batch)
        stream = learner.loss(x, y, task_idx, stored[:0])
        touched = head_rows_touched(learner, stream)
        assert {label for label, size in touched.items() if size > 0} == set(labels)
        assert set(labels) == set(task.classes)
        if len(stored):
            everything = learner.loss(x, y, task_idx, stored)
            assert all(
                size == 0
                for label, size in head_rows_touched(learner, everything).items()
                if label not in seen
            )
            touched = head_rows_touched(learner, everything - stream)
            assert {label for label, size in touched.items() if size > 1e-6} == seen
        learner.update_memory(x, y, task_idx)


def check_step(learner_class, world, assert_stepped, present_only):
    """Against cross entropies written out example by example, with classes by label."""

    class Recorded(learner_class):
        def draw_replay(self):
            self.before = copy.deepcopy(modules_of(self))
            slots = super().draw_replay()
            self.replay = self.memory.x[slots]
            return slots

    config = learner_class.Config(lr=0.05, replay=4, present_only=present_only)
    learner = Recorded(world.network(), config, memory=7, classes=DECLARED)
    for task, labels in zip((*TASKS, None) * 2, (*LABELS, [0, 4]) * 2, strict=True):
        batch = world.batch(labels, task)
        learner.learn(batch)
        seen = {label for label, _ in world.log}
        stream = seen if task is None else set(task.classes)
        if present_only:
            stream = stream & set(labels)
        loss = mean_cross_entropy(learner, world, batch.x, stream)
        if len(learner.replay):
            loss = loss + mean_cross_entropy(learner, world, learner.replay, seen)
        assert_stepped(modules_of(learner), learner.before, loss, lr=0.05)


def mean_cross_entropy(learner, world, x, allowed):
    terms = []
    for row, (label, _) in zip(x, world.who(x), strict=True):
        logits = learner.before["head"](learner.before["network"](row[None]))[0]
        score = dict(zip(learner.classes, logits, strict=True))
        terms.append(torch.stack([score[c] for c in allowed]).logsumexp(0) - score[label])
    return torch.stack(terms).mean()


def test_which_rows_of_the_head_are_touched(make_world):
    check_which_rows_are_touched(ERACE, make_world())
    for wrong in (OwnTaskReplay, SliceFromMax):
        with pytest.raises(AssertionError):
            check_which_rows_are_touched(wrong, make_world())


@pytest.mark.parametrize("present_only", [False, True])
def test_each_step_is_one_sgd_step_on_the_asymmetric_loss(make_world, assert_stepped, present_only):
    check_step(ERACE, make_world(), assert_stepped, present_only)
    with pytest.raises(AssertionError):
        check_step(OwnTaskReplay, make_world(), assert_stepped, present_only)


def test_columns_behind_the_largest_seen_are_not_taken_for_new_classes(make_world, assert_stepped):
    with pytest.raises(AssertionError):
        check_step(SliceFromMax, make_world(), assert_stepped, present_only=False)


def test_a_batch_of_one_present_class_teaches_nothing(world):
    learner = ERACE(world.network(), ERACE.Config(present_only=True), memory=0)
    before = parameters_of(learner)
    info = learner.learn(world.batch([4, 4, 4]))
    assert info.loss == 0
    assert all(map(torch.equal, before[:-2], parameters_of(learner)[:-2]))  # the head grew


def test_without_memory_it_is_sgd_bit_for_bit(world):
    ace, sgd = ERACE(world.network(), memory=0, seed=3), SGD(world.network(), memory=0, seed=3)
    for task, labels in zip(TASKS * 10, LABELS * 10, strict=True):
        batch = world.batch(labels, task)
        assert ace.learn(batch) == sgd.learn(batch)
    assert all(map(torch.equal, parameters_of(ace), parameters_of(sgd)))


@pytest.mark.parametrize("task", [Task(0, (0, 1, 2)), None])
def test_within_one_task_it_is_er_with_added_means_bit_for_bit(world, task):
    """Once all classes of the task have come, which here is at the first batch."""
    ace = ERACE(world.network(), memory=9, seed=3)
    er = ER(world.network(), ER.Config(reduction="means"), memory=9, seed=3)
    for _ in range(30):
        batch = world.batch([0, 1, 2, 1], task)
        assert ace.learn(batch) == er.learn(batch)
    assert all(map(torch.equal, parameters_of(ace), parameters_of(er)))


def test_with_the_masks_of_er_it_is_er(world):
    config = ERACE.Config(replay_mask="task", reduction="mean")
    ace, er = ERACE(world.network(), config, memory=9), ER(world.network(), memory=9)
    for task, labels in zip(TASKS * 5, LABELS * 5, strict=True):
        batch = world.batch(labels, task)
        assert ace.learn(batch) == er.learn(batch)
    assert all(map(torch.equal, parameters_of(ace), parameters_of(er)))
