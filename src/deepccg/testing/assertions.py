"""Assertions of the contract checks: each failure says in one line what is wrong."""

import math
from collections.abc import Callable
from typing import NoReturn

import torch

from deepccg.core import DeepCCGError, Learner, State, Task
from deepccg.testing.toy import askable, toy_probe


class ContractError(DeepCCGError, AssertionError):
    """A learner violates the contract; one line for each failed check."""

    def __str__(self) -> str:
        return Exception.__str__(self)


def fail(why: str) -> NoReturn:
    """Raise a ``ContractError``."""
    raise ContractError(why)


def require(holds: bool, why: str) -> None:
    """Fail unless a condition holds."""
    if not holds:
        fail(why)


def require_refused(
    errors: tuple[type[DeepCCGError], ...], call: Callable[[], object], what: str = "the call"
) -> None:
    """Fail unless a call raises one of ``errors``, with a message."""
    wanted = " or ".join(error.__name__ for error in errors)
    try:
        call()
    except errors as refusal:
        require(bool(str(refusal)), f"{what}: the {type(refusal).__name__} does not say why")
        return
    fail(f"{what} was accepted instead of refused with {wanted}")


def require_same(expected: State, found: State, when: str) -> None:
    """Fail unless two states have equal names, shapes, types and bits, and equal JSON."""
    require(expected.tensors.keys() == found.tensors.keys(), f"tensors come or go {when}")
    for name, tensor in expected.tensors.items():
        other = found.tensors[name]
        same = tensor.dtype == other.dtype and torch.equal(tensor.cpu(), other.cpu())
        require(same, f"the tensor {name} differs {when}")
    require(expected.meta == found.meta, f"the JSON part of the state differs {when}")


def require_uniform(learner: Learner, task: Task) -> None:
    """Fail unless the classes of ``task`` have equal probabilities."""
    probabilities = learner.predict_proba(toy_probe(), task)
    share = [(label in task.classes) / len(task.classes) for label in learner.columns(task)]
    expected = torch.tensor(share).expand(len(toy_probe()), -1)
    found = probabilities[0].tolist()
    same = probabilities.shape == expected.shape and torch.allclose(probabilities.float(), expected)
    require(same, f"{found} over columns {learner.columns(task)} under {task}, not uniform")


def require_proper(learner: Learner, seen: set[int]) -> None:
    """Fail unless predictions are valid under every task, after the labels ``seen``."""
    x = toy_probe()
    for task in askable(learner):
        allowed = seen if task is None else (seen & set(task.classes) or set(task.classes))
        columns = learner.columns(task)
        logits = learner.predict_logits(x, task)
        where = f"under {'no task' if task is None else task}"
        require(logits.shape == (len(x), len(columns)), f"scores {list(logits.shape)} {where}")
        outside = [column for column, label in enumerate(columns) if label not in allowed]
        named = [columns[c] for c in outside if not bool((logits[:, c] == -math.inf).all())]
        require(not named, f"labels {named} are not allowed, but scored above -inf {where}")
        total = torch.softmax(logits, dim=1).sum(dim=1)
        require(torch.allclose(total, torch.ones_like(total)), f"sums {total.tolist()} {where}")
