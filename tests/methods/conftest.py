"""A small world whose examples say who they are, so that nothing has to be taken on trust."""

import pytest
import torch
from torch import Tensor, nn

from deepccg.core import Batch, Task, make_generator

FEATURES, DIM = 5, 3
TICK = 1e-3  # the first feature of example number n is n * TICK


class Net(nn.Module):
    """A smooth embedding in double precision, followed by a turn and a shift that start idle."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.dim = DIM
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.inner = nn.Sequential(nn.Linear(FEATURES, 7), nn.Tanh(), nn.Linear(7, DIM))
        self.register_buffer("turn", torch.eye(DIM))
        self.register_buffer("shift", torch.zeros(DIM))
        self.double()

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) @ self.turn.T + self.shift


class World:
    """Makes batches and remembers the label and task of every example."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = make_generator(seed, "world")
        self.log: list[tuple[int, Task | None]] = []

    def network(self, seed: int = 0) -> Net:
        return Net(seed)

    def batch(self, labels: list[int], task: Task | None = None) -> Batch:
        x = torch.randn(len(labels), FEATURES, generator=self.generator, dtype=torch.float64)
        x[:, 1] += torch.tensor(labels, dtype=torch.float64)
        x[:, 0] = TICK * torch.arange(len(self.log), len(self.log) + len(labels))
        self.log += [(label, task) for label in labels]
        return Batch(x, torch.tensor(labels), task)

    def numbers(self, x: Tensor) -> list[int]:
        """Which examples these are."""
        return (x[:, 0] / TICK).round().long().tolist()

    def who(self, x: Tensor) -> list[tuple[int, Task | None]]:
        """Label and task of each of these examples."""
        return [self.log[number] for number in self.numbers(x)]

    def allowed(self, kind: str, task: Task | None, outputs: tuple[int, ...]) -> set[int]:
        """What the mask ``kind`` promises for an example of ``task``, by label."""
        seen = {label for label, _ in self.log}
        own = seen if task is None else set(task.classes)
        return {"task": own, "seen": seen, "all": set(outputs)}[kind]


@pytest.fixture
def world():
    return World()


@pytest.fixture(scope="session")
def make_world():
    """For tests that need several worlds."""
    return World


@pytest.fixture
def assert_stepped():
    """The present parameters are those of ``before`` after one plain SGD step on ``loss``."""

    def check(now: dict[str, nn.Module], before: dict[str, nn.Module], loss: Tensor, lr: float):
        parameters = [p for name in now for p in before[name].parameters()]
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        found = [p.detach() for module in now.values() for p in module.parameters()]
        for parameter, gradient, value in zip(parameters, gradients, found, strict=True):
            expected = parameter.detach() if gradient is None else parameter - lr * gradient
            torch.testing.assert_close(value, expected.detach(), rtol=1e-9, atol=1e-12)

    return check
