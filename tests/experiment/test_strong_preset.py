"""The preset `strong`: the same passes of the network and the same stored images for everybody."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from deepccg.core import Batch, Task, make_generator
from deepccg.experiment import resolve
from deepccg.methods import METHODS
from deepccg.reproduce.plan import STRONG_METHODS

PER_CLASS, BATCH, SHAPE = 200, 10, (3, 8, 8)
TASKS = [Task(n, (2 * n, 2 * n + 1)) for n in range(5)]
passes = {"made": 0}  # by every network of a learner, copies included


class Counted(nn.Module):
    """A network that counts images forward, and twice those that it will be passed back through."""

    dim = 4

    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(3 * 8 * 8, self.dim)

    def forward(self, x: Tensor) -> Tensor:
        z: Tensor = self.map(x.flatten(1).float() / 255)
        passes["made"] += len(x) * (3 if z.requires_grad else 1)
        return z


@cache
def passes_per_example(method: str, preset: str, scenario: str = "class") -> float:
    """On a stream of the shape of CIFAR-10's, with images of fewer pixels."""
    setting = {"dataset": "cifar10", "scenario": scenario, "preset": preset}
    config = resolve({"method": method, **setting})
    kind = METHODS[method]
    assert config.memory_per_class is not None
    memory = 10 * config.memory_per_class
    torch.manual_seed(0)
    learner = kind(Counted(), kind.Config(**config.method.fields), memory=memory, classes=range(10))
    generator = make_generator(0, "images")
    passes["made"] = 0
    for task in TASKS:
        for _ in range(2 * PER_CLASS // BATCH):
            x = torch.randint(256, (BATCH, *SHAPE), generator=generator).to(torch.uint8)
            y = torch.tensor(task.classes)[torch.randint(2, (BATCH,), generator=generator)]
            learner.learn(Batch(x, y, task))
    return passes["made"] / (10 * PER_CLASS)


@pytest.mark.slow
@pytest.mark.parametrize("method", STRONG_METHODS)
def test_everybody_makes_as_many_passes_as_deepccg_by_default(method: str) -> None:
    budget = passes_per_example("deepccg", "default")
    assert 0.85 * budget < passes_per_example(method, "strong") < 1.06 * budget


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scenario", ["task", "class"])
def test_it_stores_what_the_default_stores(method: str, scenario: str) -> None:
    strong, default = (
        resolve({"method": method, "dataset": "cifar10", "scenario": scenario, "preset": preset})
        for preset in ("strong", "default")
    )
    assert strong.memory_per_class == default.memory_per_class
    fields = strong.method.fields
    # Averages, momentum and Adam would take more bytes than the stored images.
    assert not {"average", "momentum", "optimiser"} & fields.keys()
    assert (fields == default.method.fields) == (method not in STRONG_METHODS)


@pytest.mark.parametrize("method", STRONG_METHODS)
def test_digits_are_neither_cropped_nor_mirrored(method: str) -> None:
    fields = resolve({"method": method, "dataset": "digits", "preset": "strong"}).method.fields
    assert "augment" not in fields
    assert "views" not in fields
    assert not fields.get("mirror", False)
