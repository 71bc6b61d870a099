"""The public contract suite: does a learner keep every promise of ``deepccg.core.Learner``?

Each check drives a learner through a toy stream, by the public contract alone, and says in one
line which promise was broken and how. A check's name is its function's, without the underscore.
"""

import json
import math
import random
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, NoReturn

import numpy as np
import torch
from pydantic import ValidationError
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    Config,
    DeepCCGError,
    InputError,
    Learner,
    State,
    StateMismatch,
    StepInfo,
    Task,
    TaskRequired,
    make_generator,
)
from deepccg.networks import NetworkConfig, build_network

__all__ = ["ContractError", "check_learner", "learner_checks"]

FEATURES = 8
LAYERS = (16, 8)
MEMORY = 12
TASKS = (Task(0, (7, 3)), Task(1, (1_000_003, 5)))  # labels neither contiguous nor sorted
LABELS = (7, 3, 1_000_003, 5)
NEW_TASK = Task(9, (20, 21))  # never learned


class ContractError(DeepCCGError, AssertionError):
    """A learner does not do what the contract promises."""


def check_learner(
    learner_class: type[Learner],
    *,
    config: Config | None = None,
    expected_failures: Mapping[str, str] | None = None,
) -> None:
    """Run every check and raise one ``ContractError`` that lists those that failed, and why.

    Args:
        learner_class: The learner to judge.
        config: Its fields; ``None`` takes their defaults.
        expected_failures: Names of checks that must fail, each with the reason. Strict: it is an
            error if one of them passes.

    A complete method of one's own, a nearest-mean classifier on a reservoir memory. The base class
    gives outputs, masks, prediction, saving and refusing:

    >>> import torch
    >>> from deepccg.core import Config, StepInfo
    >>> from deepccg.gaussian import class_posterior, squared_distances
    >>> from deepccg.memory import MemoryStore, reservoir_slots
    >>> from deepccg.methods import NetworkLearner
    >>> class NearestMean(NetworkLearner[Config]):
    ...     Config = Config
    ...
    ...     def __init__(self, network, config=None, *, memory=0, classes=(), seed=0):
    ...         super().__init__(network, config, memory=memory, classes=classes, seed=seed)
    ...         self.memory = MemoryStore(memory)
    ...
    ...     def learn(self, batch):
    ...         before = int(self.outputs.seen.sum())
    ...         x, y, rows = self.receive(batch)
    ...         slots = reservoir_slots(before, self.memory.capacity, len(y), self.generator)
    ...         kept = slots >= 0
    ...         self.memory.write(slots[kept], x[kept], y[kept], rows[kept])
    ...         self.steps += 1
    ...         return StepInfo(loss=0.0)
    ...
    ...     def scores(self, x):
    ...         if self.memory.size == 0:
    ...             return torch.full((len(x), len(self.outputs)), -torch.inf)
    ...         z = self.embed(self.memory.x)
    ...         known = class_posterior(z, self.memory.y, len(self.outputs))
    ...         near = -squared_distances(self.embed(x), known.mean)
    ...         return near.masked_fill(known.count == 0, -torch.inf)
    ...
    ...     def parts(self):
    ...         return {**super().parts(), "memory": self.memory}
    >>> check_learner(NearestMean)

    What a check finds is said in one line each:

    >>> class Forgetful(NearestMean):
    ...     def parts(self):
    ...         return NetworkLearner.parts(self)
    >>> check_learner(Forgetful)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    deepccg.testing.ContractError: Forgetful fails 1 of ... checks:
    - resumes_bit_for_bit (Save, load in a fresh object, continue: as if never stopped): ...
    """
    checks = learner_checks(learner_class, config, expected_failures=expected_failures)
    failures = [failure for _, check in checks if (failure := _failure_of(check)) is not None]
    if failures:
        count = f"{learner_class.__name__} fails {len(failures)} of {len(checks)} checks:"
        raise ContractError("\n- ".join([count, *map(str, failures)])) from failures[0]


def learner_checks(
    learner_class: type[Learner],
    config: Config | None = None,
    *,
    expected_failures: Mapping[str, str] | None = None,
) -> list[tuple[str, Callable[[], None]]]:
    """Every check as a name and a function without arguments, for a test runner.

    >>> from deepccg.methods import SGD
    >>> checks = learner_checks(SGD)
    >>> checks[0][0]
    'config_is_closed_and_documented'
    >>> checks[0][1]()

    With pytest, ``@pytest.mark.parametrize(("name", "check"), learner_checks(MyLearner))``.
    """
    expected = dict(expected_failures or {})
    names = [check.__name__.removeprefix("_") for check in CHECKS]
    if unknown := sorted(expected.keys() - set(names)):
        raise InputError(f"no check is named {unknown}; there are {sorted(names)}")
    subject = Subject(learner_class, config)
    return [
        (name, partial(_run_check, name, check, subject, expected.get(name)))
        for name, check in zip(names, CHECKS, strict=True)
    ]


@dataclass(frozen=True)
class Subject:
    """The learner under test, and how to make one."""

    learner_class: type[Learner]
    config: Config | None

    def learner(
        self,
        *,
        memory: int = MEMORY,
        classes: Sequence[int] = (),
        seed: int = 0,
        layers: tuple[int, ...] = LAYERS,
        shape: tuple[int, ...] = (FEATURES,),
    ) -> Learner:
        """A new learner on a new network; ``seed`` draws the network's weights, too."""
        network = build_network(NetworkConfig(kind="mlp", layers=layers), shape, seed)
        return self.on(network, memory=memory, classes=classes, seed=seed)

    def on(
        self,
        network: nn.Module,
        *,
        memory: int = MEMORY,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> Learner:
        """A new learner on ``network``."""
        return self.learner_class(network, self.config, memory=memory, classes=classes, seed=seed)

    def trained(self, batches: Sequence[Batch], *, seed: int = 0) -> Learner:
        """A new learner that has learned ``batches``."""
        learner = self.learner(seed=seed)
        for batch in batches:
            learner.learn(batch)
        return learner


Check = Callable[[Subject], None]


# What is promised of configurations and steps


def _config_is_closed_and_documented(subject: Subject) -> None:
    """Config has defaults and descriptions, survives JSON, and refuses unknown keys."""
    config_class = subject.learner_class.Config
    config = config_class() if subject.config is None else subject.config
    again = config_class.model_validate_json(config.model_dump_json())
    _require(again == config, f"JSON gives back {again!r} for {config!r}")
    for name, field in config_class.model_fields.items():
        _require(bool(field.description), f"the field {name} has no description")
    try:
        config_class.model_validate({**config.model_dump(), "no_such_field": 1})
    except ValidationError:
        return
    _fail("the key no_such_field was accepted")


def _steps_tell_finite_scalars(subject: Subject) -> None:
    """Each learn gives a StepInfo of finite numbers and replays no more than memory holds."""
    learner = subject.learner()
    for batch in _stream(steps=10):
        info = learner.learn(batch)
        _require(isinstance(info, StepInfo), f"learn returned a {type(info).__name__}")
        scalars = {"loss": info.loss, **info.extra}
        _require(all(map(math.isfinite, scalars.values())), f"not finite: {scalars}")
        _require(0 <= info.replayed <= MEMORY, f"{info.replayed} replayed from {MEMORY}")


# What is promised of predictions


def _uniform_before_learning(subject: Subject) -> None:
    """Before learning, a task gives a uniform prediction and no task an InputError."""
    for declared in ((), LABELS):
        learner = subject.learner(classes=declared)
        for task in TASKS:
            _require_uniform(learner, task)
        _require_refused((InputError, TaskRequired), partial(learner.predict_logits, _probe()))


def _uniform_on_unseen_tasks(subject: Subject) -> None:
    """A task none of whose classes has been seen gives a uniform prediction over its classes."""
    half_seen = Task(2, (7, 22))
    for declared in ((), NEW_TASK.classes):
        learner = subject.learner(classes=declared)
        learner.learn(_batch(0, half_seen, labels=(7, 7, 7)))
        _require_uniform(learner, NEW_TASK)
        _require_uniform(learner, Task(10, (22, 20)))  # 22 was named by a task, but never came


def _probabilities_are_proper(subject: Subject) -> None:
    """Scores are [B, columns], -inf outside the classes allowed; probabilities sum to one."""
    learner = subject.learner(classes=(20, 3))
    seen: set[int] = set()
    for batch in _stream():
        learner.learn(batch)
        seen |= set(batch.y.tolist())
        _require_proper(learner, seen)


def _predict_agrees_with_scores(subject: Subject) -> None:
    """Labels, probabilities and scores of one or several tasks tell the same."""
    learner = subject.trained(_stream())
    x, tasks = _probe(), [*_askable(learner), TASKS[0], NEW_TASK]
    together = learner.predict_logits_each(x, tasks)
    _require(len(together) == len(tasks), "predict_logits_each gives another number of answers")
    for task, logits in zip(tasks, together, strict=True):
        alone = learner.predict_logits(x, task)
        _require(torch.equal(alone, logits), f"predict_logits_each differs under {task}")
        softmax = torch.softmax(alone, dim=1)
        _require(torch.equal(learner.predict_proba(x, task), softmax), f"predict_proba: {task}")
        best = [learner.columns(task)[column] for column in alone.argmax(dim=1)]
        _require(learner.predict(x, task).tolist() == best, f"predict is not the best of {task}")


def _predicting_changes_nothing(subject: Subject) -> None:
    """Predictions repeat, carry no gradient, and leave state and later steps as they were."""
    asked, silent = subject.learner(), subject.learner()
    for batch, same_batch in _twins(steps=6):
        same = asked.learn(batch) == silent.learn(same_batch)
        _require(same, "a step after predictions differs")
        before = _saved(asked)
        first, second = _predictions(asked), _predictions(asked)
        _require(all(map(torch.equal, first, second)), "asked twice, it answers differently")
        _require(not any(logits.requires_grad for logits in first), "scores carry a gradient")
        _require_same(before, asked.state_dict(), "after predicting")
    _require_same(silent.state_dict(), asked.state_dict(), "after a stream with predictions")


def _it_learns(subject: Subject) -> None:
    """On a separable stream of two classes it is right far more often than the majority."""
    learner = subject.trained(_stream(tasks=TASKS[:1], steps=30))
    test = _batch(0, TASKS[0], size=200, purpose="test")
    correct = (learner.predict(test.x, TASKS[0]) == test.y).float().mean().item()
    _require(correct > 0.8, f"accuracy {correct:.2f}, where guessing gives 0.50")


# What is promised of batches, labels and tasks


def _inputs_are_not_modified(subject: Subject) -> None:
    """Learning and predicting leave the caller's tensors as they were."""
    learner = subject.learner()
    for batch in _stream():
        x, y = batch.x.clone(), batch.y.clone()
        learner.learn(batch)
        _require(torch.equal(x, batch.x), "learn changed the inputs in place")
        _require(torch.equal(y, batch.y), "learn changed the labels in place")
        learner.predict_logits(batch.x, batch.task)
        _require(torch.equal(x, batch.x), "predict_logits changed the inputs in place")


def _inputs_are_not_kept(subject: Subject) -> None:
    """What the caller later writes into a batch's tensors does not reach the learner."""
    overwritten = subject.learner()
    for batch in _stream():
        overwritten.learn(batch)
        batch.x.zero_()
        batch.y.fill_(batch.y[0])
    expected = subject.trained(_stream()).state_dict()
    _require_same(expected, overwritten.state_dict(), "after the caller reused a batch's memory")


def _odd_batches_are_learned(subject: Subject) -> None:
    """Batches of one example, of one class, of varying size, with classes new in mid-batch."""
    odd = [(7,), (7, 7, 7), (3, 7, 3, 7, 3), (3,), (7, 3, 3)]
    for task in (TASKS[0], None):
        learner = subject.learner()
        for step, labels in enumerate(odd):
            info = learner.learn(_batch(step, task, labels=labels))
            _require(math.isfinite(info.loss), f"loss {info.loss} on a batch of labels {labels}")
            _require_proper(learner, {label for seen in odd[: step + 1] for label in seen})


def _open_task_is_learned(subject: Subject) -> None:
    """Batches without a task are learned; columns are classes in order of first appearance."""
    learner = subject.learner()
    order = [5, 7, 1_000_003, 3, 20]
    for step in range(10):
        came = order[: step // 2 + 1]
        learner.learn(_batch(step, None, labels=(came[-1], *came)))
        _require(learner.classes == tuple(came), f"columns {learner.classes}, came {came}")
        _require_proper(learner, set(came))


def _columns_never_move(subject: Subject) -> None:
    """Declared classes come first, others are added behind, and no column ever moves."""
    declared = (5, 20)
    learner = subject.learner(classes=declared)
    before = learner.classes
    _require(before == declared, f"declared {declared}, columns {before}")
    for batch in _stream():
        learner.learn(batch)
        now = learner.classes
        _require(now[: len(before)] == before, f"columns changed from {before} to {now}")
        _require(len(set(now)) == len(now), f"a label has two columns: {now}")
        _require(set(batch.y.tolist()) <= set(now), f"learned {batch.y.tolist()}, columns {now}")
        before = now
    _require(learner.columns(NEW_TASK)[: len(before)] == before, "columns(task) moves columns")


def _equal_tasks_are_one_task(subject: Subject) -> None:
    """A task is what it says, not which object says it."""
    batches = [replace(b, task=replace(b.task)) for b in _stream() if b.task is not None]
    again = subject.trained(batches).state_dict()
    _require_same(subject.trained(_stream()).state_dict(), again, "with new but equal Task objects")


def _images_are_learned(subject: Subject) -> None:
    """Small uint8 images work like vectors and stay bytes for the caller."""
    shape = (1, 4, 2)
    learner = subject.learner(shape=shape)
    for batch in _stream():
        images = (batch.x * 40 + 128).clamp(0, 255).to(torch.uint8).reshape(-1, *shape)
        learner.learn(Batch(images, batch.y, batch.task))
        logits = learner.predict_logits(images, batch.task)
        _require(logits.shape == (len(images), len(learner.columns(batch.task))), "wrong shape")
    _require_same(_saved(learner), learner.state_dict(), "through safetensors and JSON")


def _refuses_bad_batches(subject: Subject) -> None:
    """Labels outside the task and inputs that are not finite: InputError, and nothing changes."""
    learner = subject.trained(_stream())
    before = _saved(learner)
    batch = _batch(0, TASKS[0])
    bad = {"label outside its task": replace(batch, y=torch.full_like(batch.y, 5))}
    for value in (math.nan, math.inf):
        x = batch.x.clone()
        x[-1, 0] = value
        bad[f"input {value}"] = replace(batch, x=x)
    for what, broken in bad.items():
        _require_refused((InputError,), partial(learner.learn, broken), what)
        _require_same(before, learner.state_dict(), f"after a refused batch ({what})")


# What is promised of randomness


def _same_seed_same_trajectory(subject: Subject) -> None:
    """Two learners with the same seed agree bit for bit, step by step."""
    one, two = subject.learner(seed=3), subject.learner(seed=3)
    for batch, same_batch in _twins(steps=8):
        same = one.learn(batch) == two.learn(same_batch)
        _require(same, "two learners tell of different steps")
        _require_same(one.state_dict(), two.state_dict(), "between two learners of one seed")
    _require(all(map(torch.equal, _predictions(one), _predictions(two))), "predictions differ")


def _global_generators_do_not_matter(subject: Subject) -> None:
    """Disturbing the global generators of torch, numpy and random changes nothing."""
    expected = subject.trained(_stream(steps=8))
    with _restored_generators():
        _seed_global_generators(1)
        disturbed = subject.learner()
        for step, batch in enumerate(_stream(steps=8)):
            _seed_global_generators(step)
            disturbed.learn(batch)
        same = all(map(torch.equal, _predictions(expected), _predictions(disturbed)))
    _require(same, "predictions depend on the global generators")
    _require_same(expected.state_dict(), disturbed.state_dict(), "with other global generators")


def _global_generators_are_not_touched(subject: Subject) -> None:
    """Making, teaching, asking and saving a learner draws nothing from the global generators."""
    with _restored_generators():
        _seed_global_generators(0)
        before = _global_generators()
        learner = subject.trained(_stream())
        _predictions(learner)
        subject.learner(seed=1).load_state_dict(_saved(learner))
        drawn = [name for name, state in _global_generators().items() if state != before[name]]
    _require(not drawn, f"drew from the global generator of {drawn}")


# What is promised of saved states


def _resumes_bit_for_bit(subject: Subject) -> None:
    """Save, load in a fresh object, continue: as if never stopped."""
    for stop in (0, 1, 6):
        whole = subject.trained(_stream(steps=10)[:stop])
        resumed = subject.learner(seed=99)
        resumed.load_state_dict(_saved(whole))
        _require(resumed.classes == whole.classes, "the classes differ after loading")
        for batch, same_batch in _twins(steps=10)[stop:]:
            same = whole.learn(batch) == resumed.learn(same_batch)
            _require(same, "a step after loading differs")
        _require_same(whole.state_dict(), resumed.state_dict(), f"stopped after {stop} steps")
        same = all(map(torch.equal, _predictions(whole), _predictions(resumed)))
        _require(same, f"predictions differ, stopped after {stop} steps")


def _states_are_snapshots(subject: Subject) -> None:
    """A state is plain tensors and JSON, and shares no memory with the learner."""
    learner = subject.trained(_stream())
    state = learner.state_dict()
    before = _saved(learner)
    _require_same(before, state, "through safetensors and JSON")
    learner.learn(_batch(0, TASKS[0]))
    _require_same(before, state, "in a state taken before a step")
    learner.load_state_dict(state)
    for tensor in state.tensors.values():
        tensor.zero_()
    _require_same(before, learner.state_dict(), "after the loaded state was overwritten")


def _refuses_foreign_states(subject: Subject) -> None:
    """A state of another method or shape: StateMismatch, and nothing changes."""
    wider = subject.learner(layers=(16, 9))
    deeper = subject.learner(layers=(16, 16, 8))
    for other in (wider, deeper):
        for batch in _stream():
            other.learn(batch)
    foreign = {
        "wider embedding": _saved(wider),
        "deeper network": _saved(deeper),
        "empty state": State({}, {}),
        "unknown method": State({"weight": torch.zeros(3)}, {"method": "unknown"}),
    }
    learner = subject.trained(_stream(steps=3))
    before = _saved(learner)
    for what, state in foreign.items():
        _require_refused((StateMismatch,), partial(learner.load_state_dict, state), what)
        _require_same(before, learner.state_dict(), f"after a refused state ({what})")


def _refuses_truncated_states(subject: Subject) -> None:
    """A state with a tensor missing or cut short: StateMismatch, and nothing changes."""
    learner, whole = subject.trained(_stream(steps=3), seed=1), _saved(subject.trained(_stream()))
    before = _saved(learner)
    for name, tensor in whole.tensors.items():
        rest = {key: value for key, value in whole.tensors.items() if key != name}
        damaged = {f"without {name}": rest}
        if tensor.ndim > 0 and len(tensor) > 0:
            damaged[f"with {name} cut short"] = {**rest, name: tensor[:-1].clone()}
        for what, tensors in damaged.items():
            load = partial(learner.load_state_dict, State(tensors, whole.meta))
            _require_refused((StateMismatch,), load, f"a state {what}")
            _require_same(before, learner.state_dict(), f"after a refused state {what}")
    for name in whole.meta:
        rest_meta = {key: value for key, value in whole.meta.items() if key != name}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what is odd may be loaded with a warning
                learner.load_state_dict(State(whole.tensors, rest_meta))
        except StateMismatch:
            _require_same(before, learner.state_dict(), f"after a refused state without {name}")
        else:  # the entry was for information only
            _require_same(whole, learner.state_dict(), f"after a state without {name}")
            learner.load_state_dict(before)


# What is promised of memory and cost


def _memory_stays_within_budget(subject: Subject) -> None:
    """No budget, one below the number of classes, and a full one: never more examples stored."""
    task = Task(0, (*LABELS, 20, 21))
    for budget in (0, 4, 15):
        learner = subject.learner(memory=budget)
        came: list[Tensor] = []
        for batch in _stream(tasks=(task,), steps=12):
            learner.learn(batch)
            came.append(batch.x)
            stored = _examples_within(learner.state_dict(), torch.cat(came))
            _require(stored <= budget, f"{stored} examples in a memory of {budget}")
        _require_proper(learner, set(task.classes))


def _state_does_not_grow(subject: Subject) -> None:
    """Once memory is full, a longer stream gives no larger state."""
    batches = _stream(tasks=TASKS[:1], steps=48)
    learner = subject.trained(batches[:16])
    early = learner.state_dict()
    for batch in batches[16:]:
        learner.learn(batch)
    late = learner.state_dict()
    grown = _tensor_bytes(late) - _tensor_bytes(early)
    _require(grown <= 0, f"the tensors grew by {grown} bytes in 32 steps")
    digits = 64  # counters are written in decimal
    grown = len(json.dumps(late.meta)) - len(json.dumps(early.meta))
    _require(grown <= digits, f"the JSON grew by {grown} characters in 32 steps")


def _step_cost_does_not_grow(subject: Subject) -> None:
    """Once memory is full, a step passes no more examples through the network than before."""
    network = build_network(NetworkConfig(kind="mlp", layers=LAYERS), (FEATURES,), 0)
    passed: list[int] = []
    network.register_forward_pre_hook(lambda _, inputs: passed.append(len(inputs[0])))
    learner = subject.on(network)
    cost = []
    for batch in _stream(tasks=TASKS[:1], steps=48):
        passed.clear()
        learner.learn(batch)
        cost.append(sum(passed))
    early, late = max(cost[8:16]), max(cost[40:])
    _require(late <= 1.5 * early, f"{early} examples a step became {late}")


def _instances_share_nothing(subject: Subject) -> None:
    """Two learners have no tensor in common, and teaching one leaves the other as it was."""
    idle, busy = subject.trained(_stream(steps=4)), subject.trained(_stream(steps=4))
    before = _saved(idle)
    for batch in _stream():
        busy.learn(batch)
    _require_same(before, idle.state_dict(), "after another learner learned")
    storages = [
        {t.untyped_storage().data_ptr() for t in _tensors_within(learner, set()) if t.numel()}
        for learner in (idle, busy)
    ]
    _require(not storages[0] & storages[1], "two learners hold the same tensor")


CHECKS: tuple[Check, ...] = (
    _config_is_closed_and_documented,
    _steps_tell_finite_scalars,
    _uniform_before_learning,
    _uniform_on_unseen_tasks,
    _probabilities_are_proper,
    _predict_agrees_with_scores,
    _predicting_changes_nothing,
    _it_learns,
    _inputs_are_not_modified,
    _inputs_are_not_kept,
    _odd_batches_are_learned,
    _open_task_is_learned,
    _columns_never_move,
    _equal_tasks_are_one_task,
    _images_are_learned,
    _refuses_bad_batches,
    _same_seed_same_trajectory,
    _global_generators_do_not_matter,
    _global_generators_are_not_touched,
    _resumes_bit_for_bit,
    _states_are_snapshots,
    _refuses_foreign_states,
    _refuses_truncated_states,
    _memory_stays_within_budget,
    _state_does_not_grow,
    _step_cost_does_not_grow,
    _instances_share_nothing,
)


# Running and failing


def _run_check(name: str, check: Check, subject: Subject, expected_failure: str | None) -> None:
    """Run one check, or, where it must fail, insist that it does."""
    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # the toys are tiny: waking other threads would cost more than it saves
    try:
        check(subject)
    except Exception as error:  # a learner under test may raise anything: it is told, and chained
        if expected_failure is None:
            kind = "" if isinstance(error, ContractError) else f"{type(error).__name__}: "
            promise = (check.__doc__ or "").strip().removesuffix(".")
            why = " ".join(str(error).split())
            raise ContractError(f"{name} ({promise}): {kind}{why}") from error
    else:
        if expected_failure is not None:
            raise ContractError(f"{name} passes, but was expected to fail: {expected_failure}")
    finally:
        torch.set_num_threads(threads)


def _failure_of(check: Callable[[], None]) -> ContractError | None:
    try:
        check()
    except ContractError as failure:
        return failure
    return None


def _fail(why: str) -> NoReturn:
    raise ContractError(why)


def _require(promise_kept: bool, why: str) -> None:
    if not promise_kept:
        _fail(why)


def _require_refused(
    errors: tuple[type[DeepCCGError], ...], call: Callable[[], object], what: str = "the call"
) -> None:
    wanted = " or ".join(error.__name__ for error in errors)
    try:
        call()
    except errors as refusal:
        _require(bool(str(refusal)), f"{what}: the {type(refusal).__name__} does not say why")
        return
    _fail(f"{what} was accepted instead of refused with {wanted}")


def _require_same(expected: State, found: State, when: str) -> None:
    """Equal names, shapes, types and bits; equal JSON."""
    _require(expected.tensors.keys() == found.tensors.keys(), f"tensors come or go {when}")
    for name, tensor in expected.tensors.items():
        other = found.tensors[name]
        same = tensor.dtype == other.dtype and torch.equal(tensor.cpu(), other.cpu())
        _require(same, f"the tensor {name} differs {when}")
    _require(expected.meta == found.meta, f"the JSON part of the state differs {when}")


def _require_uniform(learner: Learner, task: Task) -> None:
    probabilities = learner.predict_proba(_probe(), task)
    share = [(label in task.classes) / len(task.classes) for label in learner.columns(task)]
    expected = torch.tensor(share).expand(len(_probe()), -1)
    found = probabilities[0].tolist()
    same = probabilities.shape == expected.shape and torch.allclose(probabilities.float(), expected)
    _require(same, f"{found} over columns {learner.columns(task)} under {task}, not uniform")


def _require_proper(learner: Learner, seen: set[int]) -> None:
    """Scores and probabilities after the labels ``seen`` were learned, under every task."""
    x = _probe()
    for task in _askable(learner):
        allowed = seen if task is None else (seen & set(task.classes) or set(task.classes))
        columns = learner.columns(task)
        logits = learner.predict_logits(x, task)
        where = f"under {'no task' if task is None else task}"
        _require(logits.shape == (len(x), len(columns)), f"scores {list(logits.shape)} {where}")
        outside = [column for column, label in enumerate(columns) if label not in allowed]
        named = [columns[c] for c in outside if not bool((logits[:, c] == -math.inf).all())]
        _require(not named, f"labels {named} are not allowed, but scored above -inf {where}")
        total = torch.softmax(logits, dim=1).sum(dim=1)
        _require(torch.allclose(total, torch.ones_like(total)), f"sums {total.tolist()} {where}")


# The toy world: one Gaussian cloud of vectors for each label


def _batch(
    step: int,
    task: Task | None,
    *,
    labels: Sequence[int] = (),
    size: int = 5,
    purpose: str = "stream",
) -> Batch:
    """Fresh tensors, the same for the same arguments; ``labels`` are drawn unless given."""
    generator = make_generator(step, purpose)
    if not labels and task is not None:
        drawn = torch.randint(len(task.classes), (size,), generator=generator)
        labels = [task.classes[index] for index in drawn]
    centres = torch.stack([_centre(label) for label in labels])
    noise = 0.3 * torch.randn(centres.shape, generator=generator)
    return Batch(centres + noise, torch.tensor(labels), task)


@cache
def _centre(label: int) -> Tensor:
    direction = torch.randn(FEATURES, generator=make_generator(label, "centre"))
    return 2 * nn.functional.normalize(direction, dim=0)


def _stream(tasks: Sequence[Task] = TASKS, steps: int = 8) -> list[Batch]:
    """One task after the other, in batches of changing size."""
    return [
        _batch(step, tasks[step * len(tasks) // steps], size=3 + step % 4) for step in range(steps)
    ]


def _twins(steps: int) -> list[tuple[Batch, Batch]]:
    """A stream twice, so that what one learner does to a batch cannot reach another."""
    return list(zip(_stream(steps=steps), _stream(steps=steps), strict=True))


def _probe() -> Tensor:
    return _batch(0, None, labels=LABELS, purpose="probe").x


def _askable(learner: Learner) -> list[Task | None]:
    """The toy tasks, one never learned, and no task where the learner can do without."""
    tasks: list[Task | None] = [*TASKS, NEW_TASK]
    try:
        learner.predict_logits(_probe(), None)
    except TaskRequired:
        return tasks
    return [*tasks, None]


def _predictions(learner: Learner) -> list[Tensor]:
    return [learner.predict_logits(_probe(), task) for task in _askable(learner)]


def _saved(learner: Learner) -> State:
    """The state as a checkpoint would bring it back: through safetensors and JSON bytes."""
    state = learner.state_dict()
    tensors = tensors_from_bytes(tensors_to_bytes(state.tensors))
    meta: dict[str, Any] = json.loads(json.dumps(state.meta, allow_nan=False))
    return State(tensors, meta)


def _tensor_bytes(state: State) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in state.tensors.values())


def _examples_within(state: State, came: Tensor) -> int:
    """How many rows of the state's tensors are examples of the stream."""
    rows = [t for t in state.tensors.values() if t.shape[1:] == came.shape[1:]]
    return sum(int((t[:, None] == came[None]).all(dim=2).any(dim=1).sum()) for t in rows)


def _tensors_within(thing: object, visited: set[int]) -> Iterator[Tensor]:
    """Every tensor reachable through attributes, mappings and sequences."""
    if id(thing) in visited or isinstance(thing, type):
        return
    visited.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
    elif isinstance(thing, Mapping):
        for value in thing.values():
            yield from _tensors_within(value, visited)
    elif isinstance(thing, list | tuple | set):
        for value in thing:
            yield from _tensors_within(value, visited)
    else:
        yield from _tensors_within(getattr(thing, "__dict__", {}), visited)


# The global generators are the subject here, so they are used on purpose.


def _seed_global_generators(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)


def _global_generators() -> dict[str, str]:
    return {
        "torch": str(torch.get_rng_state().tolist()),
        "numpy": str([str(part) for part in np.random.get_state()]),  # noqa: NPY002
        "random": str(random.getstate()),
    }


@contextmanager
def _restored_generators() -> Iterator[None]:
    """Leave the caller's global generators as they were."""
    ours, theirs, python = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        torch.set_rng_state(ours)
        np.random.set_state(theirs)  # noqa: NPY002
        random.setstate(python)
