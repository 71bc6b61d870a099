"""Checks of configurations, steps and predictions, and of batches, labels and tasks."""

import math
from dataclasses import replace
from functools import partial

import torch
from pydantic import ValidationError

from deepccg.core import Batch, InputError, StepInfo, Task, TaskRequired
from deepccg.testing.toy import (
    LABELS,
    MEMORY,
    NEW_TASK,
    TASKS,
    Subject,
    askable,
    predictions_of,
    require,
    require_proper,
    require_refused,
    require_same,
    require_uniform,
    saved_state,
    toy_batch,
    toy_network,
    toy_probe,
    toy_stream,
    toy_twins,
)


def config_is_closed_and_documented(subject: Subject) -> None:
    """Config has defaults and descriptions, survives JSON, and refuses unknown keys."""
    config_class = subject.learner_class.Config
    config = config_class() if subject.config is None else subject.config
    again = config_class.model_validate_json(config.model_dump_json())
    require(again == config, f"JSON gives back {again!r} for {config!r}")
    for name, field in config_class.model_fields.items():
        require(bool(field.description), f"the field {name} has no description")
    unknown = {**config.model_dump(), "no_such_field": 1}
    validate = partial(config_class.model_validate, unknown)
    require_refused((ValidationError,), validate, "the key no_such_field")


def steps_tell_finite_scalars(subject: Subject) -> None:
    """Each learn gives a StepInfo of finite numbers and replays no more than memory holds."""
    learner = subject.learner()
    for batch in toy_stream(steps=10):
        info = learner.learn(batch)
        require(isinstance(info, StepInfo), f"learn returned a {type(info).__name__}")
        scalars = {"loss": info.loss, **info.extra}
        require(all(map(math.isfinite, scalars.values())), f"not finite: {scalars}")
        require(0 <= info.replayed <= MEMORY, f"{info.replayed} replayed from {MEMORY}")


def uniform_before_learning(subject: Subject) -> None:
    """Before learning, a task gives a uniform prediction and no task an InputError."""
    for declared in ((), LABELS):
        learner = subject.learner(classes=declared)
        for task in TASKS:
            require_uniform(learner, task)
        require_refused((InputError, TaskRequired), partial(learner.predict_logits, toy_probe()))


def uniform_on_unseen_tasks(subject: Subject) -> None:
    """A task none of whose classes has been seen gives a uniform prediction over its classes."""
    half_seen = Task(2, (7, 22))
    for declared in ((), NEW_TASK.classes):
        learner = subject.learner(classes=declared)
        learner.learn(toy_batch(0, half_seen, labels=(7, 7, 7)))
        require_uniform(learner, NEW_TASK)
        require_uniform(learner, Task(10, (22, 20)))  # 22 was named by a task, but never came


def probabilities_are_proper(subject: Subject) -> None:
    """Scores are [B, columns], -inf outside the classes allowed; probabilities sum to one."""
    learner = subject.learner(classes=(20, 3))
    seen: set[int] = set()
    for batch in toy_stream():
        learner.learn(batch)
        seen |= set(batch.y.tolist())
        require_proper(learner, seen)


def predict_agrees_with_scores(subject: Subject) -> None:
    """Labels, probabilities and scores of one or several tasks agree."""
    learner = subject.trained(toy_stream())
    x, tasks = toy_probe(), [*askable(learner), TASKS[0], NEW_TASK]
    together = learner.predict_logits_each(x, tasks)
    require(len(together) == len(tasks), "predict_logits_each gives another number of answers")
    for task, logits in zip(tasks, together, strict=True):
        alone = learner.predict_logits(x, task)
        require(torch.equal(alone, logits), f"predict_logits_each differs under {task}")
        softmax = torch.softmax(alone, dim=1)
        require(torch.equal(learner.predict_proba(x, task), softmax), f"predict_proba: {task}")
        best = [learner.columns(task)[column] for column in alone.argmax(dim=1)]
        require(learner.predict(x, task).tolist() == best, f"predict is not the best of {task}")


def predicting_changes_nothing(subject: Subject) -> None:
    """Predictions repeat, carry no gradient, and leave state and later steps as they were."""
    asked, silent = subject.learner(), subject.learner()
    for batch, same_batch in toy_twins(steps=6):
        same = asked.learn(batch) == silent.learn(same_batch)
        require(same, "a step after predictions differs")
        before = saved_state(asked)
        first, second = predictions_of(asked), predictions_of(asked)
        require(all(map(torch.equal, first, second)), "the same inputs give two predictions")
        require(not any(logits.requires_grad for logits in first), "scores carry a gradient")
        require_same(before, asked.state_dict(), "after predicting")
    require_same(silent.state_dict(), asked.state_dict(), "after a stream with predictions")


def it_learns(subject: Subject) -> None:
    """On a separable stream of two classes it is right far more often than the majority."""
    learner = subject.trained(toy_stream(tasks=TASKS[:1], steps=30))
    test = toy_batch(0, TASKS[0], size=200, purpose="test")
    correct = (learner.predict(test.x, TASKS[0]) == test.y).float().mean().item()
    require(correct > 0.8, f"accuracy {correct:.2f}, where guessing gives 0.50")


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
    expected, found = (subject.trained(each).state_dict() for each in (toy_stream(), batches))
    require_same(expected, found, "with new but equal Task objects")


def images_are_learned(subject: Subject) -> None:
    """Small uint8 images work like vectors and stay bytes for the caller."""
    shape = (1, 4, 2)
    learner = subject.learner(toy_network(shape=shape))
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
