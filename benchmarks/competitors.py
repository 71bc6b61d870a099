"""What is timed: learners and references in the middle of a CIFAR-shaped stream, memory full."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from interleaved import Step
from reference import BATCH, ONE_BY_ONE, REFERENCES
from torch import Tensor, nn

from deepccg.core import Batch, Learner, Task, make_generator, validated
from deepccg.experiment import learner_class, resolve
from deepccg.networks import SlimResNet18, build_network, gains_from_native

SHAPE = (3, 32, 32)
PER_TASK = 5
# What the references compute. CIFAR-100's preset has gradients through the means of a sample
# (`MODES` in bench.py).
AS_REFERENCE: dict[str, dict[str, object]] = {
    "deepccg": {"posterior": "exact", "mean_gradient": False},
    "deepccg-reservoir": {"posterior": "exact", "mean_gradient": False},
}


@dataclass(frozen=True)
class Setting:
    """How large the problem is."""

    classes: int = 100
    per_class: int = 10

    @property
    def tasks(self) -> list[Task]:
        starts = range(0, self.classes, PER_TASK)
        return [Task(i, tuple(range(s, s + PER_TASK))) for i, s in enumerate(starts)]


def images(count: int, purpose: str) -> Tensor:
    generator = make_generator(0, purpose)
    return torch.randint(0, 256, (count, *SHAPE), generator=generator, dtype=torch.uint8)


def batches(setting: Setting) -> Iterator[Batch]:
    """Without end, all of the last task."""
    task = setting.tasks[-1]
    pool = images(50 * BATCH, "stream")
    generator = make_generator(1, "stream")
    while True:
        at = torch.randint(len(pool), (BATCH,), generator=generator)
        labels = torch.randint(PER_TASK, (BATCH,), generator=generator)
        yield Batch(pool[at], torch.tensor(task.classes)[labels], task)


def build_learner(name: str, setting: Setting, **fields: object) -> Learner:
    """A learner as `deepccg run` makes it for CIFAR-100, its memory filled."""
    fields = {**AS_REFERENCE.get(name, {}), **fields}
    settings = {f"method.{key}": value for key, value in fields.items()}
    config = resolve({"dataset": "cifar100", "method": name, **settings})
    native = gains_from_native(config.network, SHAPE)
    network = build_network(config.network, SHAPE, 0, native)
    kind = learner_class(name)
    budget = setting.classes * setting.per_class
    own = validated(kind.Config, config.method.fields, "method")
    learner = kind(network, own, memory=budget, classes=range(setting.classes), seed=0)
    for i, task in enumerate(setting.tasks):  # every class is met
        learner.learn(Batch(images(PER_TASK, f"task {i}"), torch.tensor(task.classes), task))
    fill(learner, setting)
    return learner


def fill(learner: Learner, setting: Setting) -> None:
    """Give every class its share of stored examples, with columns like those already there."""
    memory = learner.memory
    if memory.size == 0:  # a method without a memory
        return
    y = torch.arange(setting.classes).repeat_interleave(setting.per_class)
    template = {name: memory[name][:1] for name in memory.state().meta["columns"]}
    memory.remove(torch.arange(memory.size))
    columns = {name: row.repeat(len(y), *[1] * (row.ndim - 1)) for name, row in template.items()}
    columns |= {"x": images(len(y), "memory"), "y": y, "task": 1 + y // PER_TASK}
    if "arrived" in columns:
        columns["arrived"] = torch.arange(len(y)) % 20
    memory.append(**columns)
    learner.class_table.seen += setting.per_class


@dataclass
class Counter:
    """Network passes and images embedded while counting."""

    passes: int = 0
    images: int = 0
    with_gradient: int = 0

    def __call__(self, module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> None:
        if isinstance(module, SlimResNet18):
            self.passes += 1
            self.images += len(args[0])
            self.with_gradient += len(args[0]) if output.requires_grad else 0


@contextmanager
def counting() -> Iterator[Counter]:
    """Counts the forwards of every slim ResNet, copies of a learner's included."""
    counter = Counter()
    hook = nn.modules.module.register_module_forward_hook(counter)
    try:
        yield counter
    finally:
        hook.remove()


def learner_step(learner: Learner, setting: Setting) -> Step:
    stream = batches(setting)
    return lambda: learner.learn(next(stream))


def reference_step(name: str, setting: Setting, one_by_one: bool = False) -> Step:
    y = torch.arange(setting.classes).repeat_interleave(setting.per_class)
    masks = torch.block_diag(*[torch.ones(1, PER_TASK)] * len(setting.tasks)).bool()
    kind = (ONE_BY_ONE if one_by_one else REFERENCES)[name]
    torch.manual_seed(0)
    reference = kind(images(len(y), "memory"), y, y // PER_TASK, masks)
    stream = batches(setting)
    tasks = torch.full((BATCH,), len(setting.tasks) - 1)

    def step() -> None:
        batch = next(stream)
        reference.step(batch.x, batch.y, tasks)

    return step
