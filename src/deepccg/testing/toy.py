"""The toy world that learners are driven through: one Gaussian cloud of vectors per label."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

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


class ContractError(DeepCCGError, AssertionError):
    """A learner does not do what the contract promises; one line for each promise."""

    def __str__(self) -> str:
        return Exception.__str__(self)


def fail(why: str) -> NoReturn:
    """Say which promise was broken."""
    raise ContractError(why)


def require(promise_kept: bool, why: str) -> None:
    """Insist on a promise."""
    if not promise_kept:
        fail(why)


def require_refused(
    errors: tuple[type[DeepCCGError], ...], call: Callable[[], object], what: str = "the call"
) -> None:
    """Insist that a call is refused with one of ``errors``, and that it says why."""
    wanted = " or ".join(error.__name__ for error in errors)
    try:
        call()
    except errors as refusal:
        require(bool(str(refusal)), f"{what}: the {type(refusal).__name__} does not say why")
        return
    fail(f"{what} was accepted instead of refused with {wanted}")


def require_same(expected: State, found: State, when: str) -> None:
    """Equal names, shapes, types and bits; equal JSON."""
    require(expected.tensors.keys() == found.tensors.keys(), f"tensors come or go {when}")
    for name, tensor in expected.tensors.items():
        other = found.tensors[name]
        same = tensor.dtype == other.dtype and torch.equal(tensor.cpu(), other.cpu())
        require(same, f"the tensor {name} differs {when}")
    require(expected.meta == found.meta, f"the JSON part of the state differs {when}")


FEATURES = 8
LAYERS = (16, 8)
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


def toy_batch(
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
    centres = torch.stack([toy_centre(label) for label in labels])
    noise = 0.3 * torch.randn(centres.shape, generator=generator)
    return Batch(centres + noise, torch.tensor(labels), task)


@cache
def toy_centre(label: int) -> Tensor:
    """The middle of a label's cloud."""
    direction = torch.randn(FEATURES, generator=make_generator(label, "centre"))
    return 2 * nn.functional.normalize(direction, dim=0)


def toy_stream(tasks: Sequence[Task] = TASKS, steps: int = 8) -> list[Batch]:
    """One task after the other, in batches of changing size."""
    return [
        toy_batch(step, tasks[step * len(tasks) // steps], size=3 + step % 4)
        for step in range(steps)
    ]


def toy_twins(steps: int) -> list[tuple[Batch, Batch]]:
    """A stream twice, so that what one learner does to a batch cannot reach another."""
    return list(zip(toy_stream(steps=steps), toy_stream(steps=steps), strict=True))


def toy_probe() -> Tensor:
    """One example of each label, never learned."""
    return toy_batch(0, None, labels=LABELS, purpose="probe").x


def askable(learner: Learner) -> list[Task | None]:
    """The toy tasks, one never learned, and no task where the learner can do without."""
    tasks: list[Task | None] = [*TASKS, NEW_TASK]
    try:
        learner.predict_logits(toy_probe(), None)
    except TaskRequired:
        return tasks
    return [*tasks, None]


def predictions_of(learner: Learner) -> list[Tensor]:
    """Scores of the probe under every task the learner can be asked about."""
    return [learner.predict_logits(toy_probe(), task) for task in askable(learner)]


def saved_state(learner: Learner) -> State:
    """The state as a checkpoint would bring it back: through safetensors and JSON bytes."""
    state = learner.state_dict()
    tensors = tensors_from_bytes(tensors_to_bytes(state.tensors))
    meta: dict[str, Any] = json.loads(json.dumps(state.meta, allow_nan=False))
    return State(tensors, meta)


def tensor_bytes(state: State) -> int:
    """How many bytes the tensors of a state have."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.tensors.values())


def examples_within(state: State, came: Tensor) -> int:
    """How many rows of the state's tensors are examples of the stream."""
    rows = [t for t in state.tensors.values() if t.shape[1:] == came.shape[1:]]
    return sum(int((t[:, None] == came[None]).all(dim=2).any(dim=1).sum()) for t in rows)
