"""What a step costs, in numbers that do not depend on the machine.

A stream of four tasks, a full memory, and steps in the last task: 10 examples come, 10 are
replayed. Forwards are counted on every copy of the network.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
import torch
from torch import nn

from deepccg.core import Batch, Learner, Task, make_generator
from deepccg.methods import METHODS
from deepccg.networks import MLP, NetworkConfig, build_network
from deepccg.networks.kernels import unavailable_reason

FEATURES, PER_TASK, PER_CLASS, STEPS = 6, 5, 4, 6
TASKS = [Task(i, tuple(range(i * PER_TASK, (i + 1) * PER_TASK)), batches=8) for i in range(4)]
MEMORY = len(TASKS) * PER_TASK * PER_CLASS

# Passes with gradient and images in them; the same without gradient (docs/performance.md).
EXPECTED = {
    "sgd": (1, 10, 0, 0),
    "multi-task": (1, 10, 0, 0),
    "ewc": (1, 10, 0, 0),
    "packnet": (1, 10, 0, 0),
    "er": (1, 20, 0, 0),
    "er-ace": (1, 20, 0, 0),
    "entropy-ss": (1, 20, 0, 0),
    "agem": (2, 20, 0, 0),
    "derpp": (1, 30, 0, 0),
    "gss": (2, 40, 0, 0),
    "esmer": (1, 20, 1, 20),
    "infogs": (1, 20, 1, 20),
    "mir": (2, 20, 2, 100),  # 50 candidates, before and after the virtual step
    "pcr": (1, 40, 0, 0),  # two views
    "scr": (1, 180, 0, 0),  # two views of the batch and all 80 stored examples
    "gdumb": (0, 0, 0, 0),
}
FIELDS = {"deepccg": {"replay_mask": "task"}, "deepccg-reservoir": {"replay_mask": "task"}}


@dataclass
class Count:
    passes: int = 0
    images: int = 0
    free_passes: int = 0
    free_images: int = 0

    def __call__(self, module, _args, output) -> None:
        if isinstance(module, MLP) and output.requires_grad:
            self.passes += 1
            self.images += len(output)
        elif isinstance(module, MLP):
            self.free_passes += 1
            self.free_images += len(output)


@contextmanager
def counting() -> Iterator[Count]:
    count = Count()
    hook = nn.modules.module.register_module_forward_hook(count)
    yield count
    hook.remove()


def batch_of(task: Task, size: int, seed: int) -> Batch:
    generator = make_generator(seed, "counts")
    y = torch.tensor(task.classes).repeat(size // PER_TASK)
    return Batch(torch.randn(size, FEATURES, generator=generator), y, task)


def in_the_last_task(name: str, **fields) -> Learner:
    """A learner that has seen all classes and has a full memory, where it has one."""
    kind = METHODS[name]
    network = build_network(NetworkConfig(kind="mlp", layers=(8, 7)), (FEATURES,), 0)
    config = kind.Config(**{**FIELDS.get(name, {}), **fields})
    learner = kind(network, config, memory=MEMORY, classes=range(20), seed=0)
    for task in TASKS:
        for i in range(2):
            learner.learn(batch_of(task, PER_TASK * PER_CLASS, i))
    assert learner.memory.size in (0, MEMORY)
    return learner


@pytest.mark.parametrize("name", EXPECTED)
def test_passes_and_images_of_a_step(name):
    learner = in_the_last_task(name)
    for i in range(STEPS):
        with counting() as count:
            learner.learn(batch_of(TASKS[-1], 10, 100 + i))
        assert (count.passes, count.images, count.free_passes, count.free_images) == EXPECTED[name]


@pytest.mark.parametrize("name", ["deepccg", "deepccg-reservoir", "protocl"])
def test_a_conditioned_step_embeds_the_stored_examples_it_compares_with_and_no_others(name):
    learner = in_the_last_task(name)
    for i in range(STEPS):
        before = learner.memory.y.clone()
        with counting() as count:
            info = learner.learn(batch_of(TASKS[-1], 10, 100 + i))
        assert (count.passes, count.images) == (1, 10 + info.replayed)
        assert count.free_passes <= -(-count.free_images // 48)  # in pieces of 48
        # Whole tasks but for the replay: the last one's, and of those that were replayed.
        held = torch.bincount(before // PER_TASK, minlength=len(TASKS)).tolist()
        sums = {held[3] + sum(held[j] for j in range(3) if chosen >> j & 1) for chosen in range(8)}
        assert count.free_images + info.replayed in sums


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("name", ["deepccg", "deepccg-reservoir"])
def test_a_sampled_step_embeds_two_of_each_class_it_compares_with(name, through):
    learner = in_the_last_task(name, posterior="sampled", sample=2, mean_gradient=through)
    for i in range(STEPS):
        with counting() as count:
            info = learner.learn(batch_of(TASKS[-1], 10, 100 + i))
        sampled = count.images + count.free_images - 10 - info.replayed
        assert (count.passes, count.free_passes) == ((1, 0) if through else (1, 1))
        assert (count.free_images == 0) == through
        assert sampled <= 2 * PER_TASK * 3  # a replay of ten from one task may meet two
        if name == "deepccg":  # a reservoir may hold fewer of a class
            assert sampled >= PER_TASK  # of each class one at least is not replayed


@pytest.mark.parametrize(("name", "most"), [("icarl", 20 + 30), ("deepccg-standard-head", 30)])
def test_selection_embeds_the_classes_of_the_batch_only(name, most):
    learner = in_the_last_task(name)
    for i in range(STEPS):
        with counting() as count:
            learner.learn(batch_of(TASKS[-1], 10, 100 + i))
        assert (count.passes, count.images) == (1, 20)
        assert count.free_images <= most


@pytest.mark.parametrize("name", METHODS)
def test_a_full_memory_is_written_in_place(name):
    learner = in_the_last_task(name)
    columns = learner.memory.state().meta["columns"]
    before = {column: learner.memory[column].data_ptr() for column in columns}
    for i in range(STEPS):
        learner.learn(batch_of(TASKS[-1], 10, 100 + i))
    assert {column: learner.memory[column].data_ptr() for column in columns} == before


@pytest.mark.skipif(unavailable_reason() is not None, reason=f"{unavailable_reason()}")
def test_no_batch_size_makes_anything_compile_again(monkeypatch):
    network = build_network(NetworkConfig(width=2), (3, 16, 16), 0, native=True)

    def refuse(*_, **__):
        pytest.fail("something was compiled")

    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    for size, side in ((1, 16), (7, 16), (20, 16), (50, 16), (3, 20)):
        z = network(torch.zeros(size, 3, side, side, dtype=torch.uint8))
        z.sum().backward()
