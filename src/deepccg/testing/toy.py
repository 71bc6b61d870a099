"""What the checks are written with: a toy stream, learners on it, and one-line assertions.

The stream has one Gaussian cloud of vectors for each label.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from safetensors.torch import load as tensors_from_bytes
from safetensors.torch import save as tensors_to_bytes
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    Config,
    DeepCCGError,
    Learner,
    State,
    Task,
    TaskRequired,
    make_generator,
)
from deepccg.networks import NetworkConfig, build_network

FEATURES = 8
MEMORY = 12
TASKS = (Task(0, (7, 3)), Task(1, (1_000_003, 5)))  # labels neither contiguous nor sorted
LABELS = (7, 3, 1_000_003, 5)
NEW_TASK = Task(9, (20, 21))  # never learned


@dataclass(frozen=True)
class Subject:
    """The learner under test, and how to make one."""

    learner_class: type[Learner]
    config: Config | None

    def learner(
        self,
        network: nn.Module | None = None,
        *,
        memory: int = MEMORY,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> Learner:
        """Return a new learner; ``seed`` also draws the weights of a network that is not given."""
        network = toy_network(seed=seed) if network is None else network
        return self.learner_class(network, self.config, memory=memory, classes=classes, seed=seed)

    def trained(
        self, batches: Sequence[Batch], network: nn.Module | None = None, seed: int = 0
    ) -> Learner:
        """Return a new learner that has learned ``batches``."""
        learner = self.learner(network, seed=seed)
        for batch in batches:
            learner.learn(batch)
        return learner


Check = Callable[[Subject], None]


def toy_network(
    layers: tuple[int, ...] = (16, 8), shape: Sequence[int] = (FEATURES,), seed: int = 0
) -> nn.Module:
    """Return a small MLP for inputs of ``shape``."""
    return build_network(NetworkConfig(kind="mlp", layers=layers), shape, seed)


def toy_batch(
    step: int, task: Task | None, labels: Sequence[int] = (), size: int = 5, purpose: str = "stream"
) -> Batch:
    """Return fresh tensors, equal for equal arguments; ``labels`` are drawn unless given."""
    generator = make_generator(step, purpose)
    if not labels and task is not None:
        drawn = torch.randint(len(task.classes), (size,), generator=generator)
        labels = [task.classes[index] for index in drawn]
    centres = torch.stack([toy_centre(label) for label in labels])
    noise = 0.3 * torch.randn(centres.shape, generator=generator)
    return Batch(centres + noise, torch.tensor(labels), task)


@cache
def toy_centre(label: int) -> Tensor:
    """Return the mean of a label's cloud."""
    direction = torch.randn(FEATURES, generator=make_generator(label, "centre"))
    return 2 * nn.functional.normalize(direction, dim=0)


def toy_stream(tasks: Sequence[Task] = TASKS, steps: int = 8) -> list[Batch]:
    """Return one task after the other, in batches of varying size."""
    return [
        toy_batch(step, tasks[step * len(tasks) // steps], size=3 + step % 4)
        for step in range(steps)
    ]


def toy_twins(steps: int) -> list[tuple[Batch, Batch]]:
    """Return a stream twice, so that what one learner does to a batch cannot reach another."""
    return list(zip(toy_stream(steps=steps), toy_stream(steps=steps), strict=True))


def toy_probe() -> Tensor:
    """Return an example of each label that is never learned."""
    return toy_batch(0, None, labels=LABELS, purpose="probe").x


def askable(learner: Learner) -> list[Task | None]:
    """Return the toy tasks, one never learned, and ``None`` if the learner predicts without."""
    tasks: list[Task | None] = [*TASKS, NEW_TASK]
    try:
        learner.predict_logits(toy_probe(), None)
    except TaskRequired:
        return tasks
    return [*tasks, None]


def predictions_of(learner: Learner) -> list[Tensor]:
    """Return the scores of the probe under every askable task."""
    return [learner.predict_logits(toy_probe(), task) for task in askable(learner)]


def saved_state(learner: Learner) -> State:
    """Return the state as a checkpoint restores it: through safetensors and JSON bytes."""
    state = learner.state_dict()
    tensors = tensors_from_bytes(tensors_to_bytes(state.tensors))
    meta: dict[str, Any] = json.loads(json.dumps(state.meta, allow_nan=False))
    return State(tensors, meta)


def examples_within(state: State, stream: Tensor) -> int:
    """Return how many rows of the state's tensors are examples of the stream."""
    rows = [t for t in state.tensors.values() if t.shape[1:] == stream.shape[1:]]
    return sum(int((t[:, None] == stream[None]).all(dim=2).any(dim=1).sum()) for t in rows)


class ContractError(DeepCCGError, AssertionError):
    """A learner violates the contract; one line for each failed check."""

    def __str__(self) -> str:
        return Exception.__str__(self)


def require(holds: bool, why: str) -> None:
    """Fail unless a condition holds."""
    if not holds:
        raise ContractError(why)


def require_refused(
    errors: tuple[type[Exception], ...], call: Callable[[], object], what: str = "the call"
) -> None:
    """Fail unless a call raises one of ``errors``, with a message."""
    wanted = " or ".join(error.__name__ for error in errors)
    try:
        call()
    except errors as refusal:
        require(bool(str(refusal)), f"{what}: the {type(refusal).__name__} does not say why")
        return
    raise ContractError(f"{what} was accepted instead of refused with {wanted}")


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
