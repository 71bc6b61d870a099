"""Small images of four classes in two tasks, and learners on them, for tests of the recipe."""

from collections.abc import Sequence

import torch
from torch import Tensor

from deepccg.core import Batch, Task, make_generator
from deepccg.learners.base import NetworkLearner
from deepccg.methods import METHODS
from deepccg.networks import NetworkConfig, build_network

SHAPE = (2, 6, 7)  # neither square nor grey: axes that are mixed up are noticed
TASKS = (Task(0, (5, 2), batches=6), Task(1, (9, 4), batches=6))
REPLAYING = [name for name in METHODS if "views" in METHODS[name].Config.model_fields]


def images(labels: Sequence[int], seed: int) -> Tensor:
    """Noise, with a bright patch that tells the classes apart, as bytes."""
    x = torch.randint(0, 120, (len(labels), *SHAPE), generator=make_generator(seed, "images"))
    for image, label in zip(x, labels, strict=True):
        image[label % 2, label % 5 : label % 5 + 2, label % 6 : label % 6 + 2] += 120
    return x.to(torch.uint8)


def batch(step: int) -> Batch:
    task = TASKS[step // 6 % 2]
    labels = [task.classes[(step + i) % 2] for i in range(5)]
    return Batch(images(labels, step), torch.tensor(labels), task)


def queries(count: int = 9) -> Tensor:
    return images([2, 5, 4, 9, 2, 5, 4, 9, 2][:count], 1000)


def make(name: str, *, seed: int = 0, **fields: object) -> NetworkLearner:
    network = build_network(NetworkConfig(kind="mlp", layers=(9, 6)), SHAPE, 0).double()
    kind = METHODS[name]
    return kind(network, kind.Config(**fields), memory=10, seed=seed)


def trained(name: str, steps: int = 10, **fields: object) -> NetworkLearner:
    learner = make(name, **fields)
    for step in range(steps):
        learner.learn(batch(step))
    return learner


def assert_same_state(one: NetworkLearner, other: NetworkLearner) -> None:
    """Bit for bit, but for what they are told to do."""
    a, b = one.state_dict(), other.state_dict()
    assert {**a.meta, "config": None} == {**b.meta, "config": None}
    assert a.tensors.keys() == b.tensors.keys()
    assert [name for name in a.tensors if not torch.equal(a.tensors[name], b.tensors[name])] == []
