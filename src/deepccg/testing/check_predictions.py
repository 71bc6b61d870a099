"""Checks of configurations, steps and predictions."""

import math
from functools import partial

import torch
from pydantic import ValidationError

from deepccg.core import InputError, StepInfo, Task, TaskRequired
from deepccg.testing.assertions import (
    fail,
    require,
    require_proper,
    require_refused,
    require_same,
    require_uniform,
)
from deepccg.testing.toy import (
    LABELS,
    MEMORY,
    NEW_TASK,
    TASKS,
    Subject,
    askable,
    predictions_of,
    saved_state,
    toy_batch,
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
    try:
        config_class.model_validate({**config.model_dump(), "no_such_field": 1})
    except ValidationError:
        return
    fail("the key no_such_field was accepted")


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
        require(all(map(torch.equal, first, second)), "asked twice, it answers differently")
        require(not any(logits.requires_grad for logits in first), "scores carry a gradient")
        require_same(before, asked.state_dict(), "after predicting")
    require_same(silent.state_dict(), asked.state_dict(), "after a stream with predictions")


def it_learns(subject: Subject) -> None:
    """On a separable stream of two classes it is right far more often than the majority."""
    learner = subject.trained(toy_stream(tasks=TASKS[:1], steps=30))
    test = toy_batch(0, TASKS[0], size=200, purpose="test")
    correct = (learner.predict(test.x, TASKS[0]) == test.y).float().mean().item()
    require(correct > 0.8, f"accuracy {correct:.2f}, where guessing gives 0.50")
