"""The toy stream that learners are tested on: one Gaussian cloud of vectors per label."""

import json
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
    Learner,
    State,
    Task,
    TaskRequired,
    make_generator,
)
from deepccg.networks import NetworkConfig, build_network

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
        """Return a new learner on a new network; ``seed`` draws the network's weights, too."""
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
        """Return a new learner on ``network``."""
        return self.learner_class(network, self.config, memory=memory, classes=classes, seed=seed)

    def trained(self, batches: Sequence[Batch], *, seed: int = 0) -> Learner:
        """Return a new learner that has learned ``batches``."""
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


def tensor_bytes(state: State) -> int:
    """Return the bytes of all tensors of a state."""
    return sum(tensor.numel() * tensor.element_size() for tensor in state.tensors.values())


def examples_within(state: State, stream: Tensor) -> int:
    """Return how many rows of the state's tensors are examples of the stream."""
    rows = [t for t in state.tensors.values() if t.shape[1:] == stream.shape[1:]]
    return sum(int((t[:, None] == stream[None]).all(dim=2).any(dim=1).sum()) for t in rows)
