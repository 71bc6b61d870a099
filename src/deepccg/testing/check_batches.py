"""Checks of batches, labels and tasks."""

import math
from dataclasses import replace
from functools import partial

import torch

from deepccg.core import Batch, InputError
from deepccg.testing.assertions import require, require_proper, require_refused, require_same
from deepccg.testing.toy import NEW_TASK, TASKS, Subject, saved_state, toy_batch, toy_stream


def inputs_are_not_modified(subject: Subject) -> None:
    """Learning and predicting leave the caller's tensors as they were."""
    learner = subject.learner()
    for batch in toy_stream():
        x, y = batch.x.clone(), batch.y.clone()
        learner.learn(batch)
        require(torch.equal(x, batch.x), "learn changed the inputs in place")
        require(torch.equal(y, batch.y), "learn changed the labels in place")
        learner.predict_logits(batch.x, batch.task)
        require(torch.equal(x, batch.x), "predict_logits changed the inputs in place")


def inputs_are_not_kept(subject: Subject) -> None:
    """What the caller later writes into a batch's tensors does not reach the learner."""
    overwritten = subject.learner()
    for batch in toy_stream():
        overwritten.learn(batch)
        batch.x.zero_()
        batch.y.fill_(batch.y[0])
    expected = subject.trained(toy_stream()).state_dict()
    require_same(expected, overwritten.state_dict(), "after the caller reused a batch's memory")


def odd_batches_are_learned(subject: Subject) -> None:
    """Batches of one example, of one class, of varying size, with classes new in mid-batch."""
    odd = [(7,), (7, 7, 7), (3, 7, 3, 7, 3), (3,), (7, 3, 3)]
    for task in (TASKS[0], None):
        learner = subject.learner()
        for step, labels in enumerate(odd):
            info = learner.learn(toy_batch(step, task, labels=labels))
            require(math.isfinite(info.loss), f"loss {info.loss} on a batch of labels {labels}")
            require_proper(learner, {label for seen in odd[: step + 1] for label in seen})


def open_task_is_learned(subject: Subject) -> None:
    """Batches without a task are learned; columns are classes in order of first appearance."""
    learner = subject.learner()
    order = [5, 7, 1_000_003, 3, 20]
    for step in range(10):
        seen = order[: step // 2 + 1]
        learner.learn(toy_batch(step, None, labels=(seen[-1], *seen)))
        require(learner.classes == tuple(seen), f"columns {learner.classes}, seen {seen}")
        require_proper(learner, set(seen))


def columns_never_move(subject: Subject) -> None:
    """Declared classes come first, others are added behind, and no column ever moves."""
    declared = (5, 20)
    learner = subject.learner(classes=declared)
    before = learner.classes
    require(before == declared, f"declared {declared}, columns {before}")
    for batch in toy_stream():
        learner.learn(batch)
        now = learner.classes
        require(now[: len(before)] == before, f"columns changed from {before} to {now}")
        require(len(set(now)) == len(now), f"a label has two columns: {now}")
        require(set(batch.y.tolist()) <= set(now), f"learned {batch.y.tolist()}, columns {now}")
        before = now
    require(learner.columns(NEW_TASK)[: len(before)] == before, "columns(task) moves columns")


def equal_tasks_are_one_task(subject: Subject) -> None:
    """A task is what it says, not which object says it."""
    batches = [replace(b, task=replace(b.task)) for b in toy_stream() if b.task is not None]
    again = subject.trained(batches).state_dict()
    require_same(
        subject.trained(toy_stream()).state_dict(), again, "with new but equal Task objects"
    )


def images_are_learned(subject: Subject) -> None:
    """Small uint8 images work like vectors and stay bytes for the caller."""
    shape = (1, 4, 2)
    learner = subject.learner(shape=shape)
    for batch in toy_stream():
        images = (batch.x * 40 + 128).clamp(0, 255).to(torch.uint8).reshape(-1, *shape)
        learner.learn(Batch(images, batch.y, batch.task))
        logits = learner.predict_logits(images, batch.task)
        require(logits.shape == (len(images), len(learner.columns(batch.task))), "wrong shape")
    require_same(saved_state(learner), learner.state_dict(), "through safetensors and JSON")


def refuses_bad_batches(subject: Subject) -> None:
    """Labels outside the task and inputs that are not finite: InputError, and nothing changes."""
    learner = subject.trained(toy_stream())
    before = saved_state(learner)
    batch = toy_batch(0, TASKS[0])
    bad = {"label outside its task": replace(batch, y=torch.full_like(batch.y, 5))}
    for value in (math.nan, math.inf):
        x = batch.x.clone()
        x[-1, 0] = value
        bad[f"input {value}"] = replace(batch, x=x)
    for what, broken in bad.items():
        require_refused((InputError,), partial(learner.learn, broken), what)
        require_same(before, learner.state_dict(), f"after a refused batch ({what})")
