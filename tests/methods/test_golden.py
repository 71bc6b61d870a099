"""Every method on one short stream, against the numbers it gave when they were last written.

``make golden`` (or ``python tests/methods/test_golden.py``) writes golden.json.
"""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deepccg.core import Batch, Config, Learner, State, Task, TaskRequired, make_generator
from deepccg.methods import ER, METHODS
from deepccg.networks import NetworkConfig, build_network

FILE = Path(__file__).with_name("golden.json")
TOLERANCE = 1e-6  # relative
HOW = "run `make golden` and review the difference in tests/methods/golden.json"

FEATURES, STEPS, SIZE, MEMORY = 8, 28, 5, 12
# Two tasks that share nothing, then two that share classes with those before.
CLASSES = ((0, 1), (2, 3), (3, 4), (4, 5, 0))
TASKS = tuple(Task(i, classes, batches=STEPS // 4) for i, classes in enumerate(CLASSES))

Golden = dict[str, float]


def examples(labels: Tensor, purpose: str, step: int = 0) -> Tensor:
    """Clouds that overlap, so that accuracies are neither 0 nor 1."""
    centres = torch.randn(6, FEATURES, generator=make_generator(0, "centres"), dtype=torch.float64)
    generator = make_generator(step, purpose)
    noise = torch.randn(len(labels), FEATURES, generator=generator, dtype=torch.float64)
    return centres[labels] + 0.8 * noise


def stream_batch(step: int) -> Batch:
    task = TASKS[step * len(TASKS) // STEPS]
    drawn = torch.randint(len(task.classes), (SIZE,), generator=make_generator(step, "labels"))
    y = torch.tensor(task.classes)[drawn]
    return Batch(examples(y, "stream", step), y, task)


def run(method: type[Learner], config: Config | None = None) -> Golden:
    """What a fresh learner does on the stream, in double precision."""
    network = build_network(NetworkConfig(kind="mlp", layers=(10, 6)), (FEATURES,), 0).double()
    learner = method(network, config, memory=MEMORY, seed=0)
    start = learner.state_dict()
    losses = [learner.learn(stream_batch(step)).loss for step in range(STEPS)]
    every = {f"loss of step {step}": losses[step] for step in range(0, STEPS, 3)}
    return {**every, **sums_of(learner, start), **accuracies_of(learner)}


def sums_of(learner: Learner, start: State) -> Golden:
    """Norms of the network and of all else that is saved, and what is in which slot of memory."""
    tensors = learner.state_dict().tensors
    floats = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    network = [name for name in floats if name.startswith("network.")]
    other = [floats[name] for name in floats if not name.startswith(("network.", "memory."))]
    stored = {name: tensors[f"memory.{name}"] for name in ("x", "y", "task")}
    slot = 1.0 + torch.arange(len(stored["y"]), dtype=torch.float64)
    return {
        "parameter norm": norm([floats[name] for name in network]),
        "way from the start": norm([floats[name] - start.tensors[name] for name in network]),
        "norm of further state": norm(other),
        "stored examples": float(len(slot)),
        "stored labels by slot": float(slot @ (1 + stored["y"].double())),
        "stored tasks by slot": float(slot @ (1 + stored["task"].double())),
        "stored inputs by slot": sum(
            float(n * x.sum()) for n, x in zip(slot, stored["x"], strict=True)
        ),
    }


def norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


def accuracies_of(learner: Learner) -> Golden:
    """On held-out examples; of each task for task-incremental, of all classes otherwise."""
    y = torch.arange(6).repeat_interleave(25)
    x = examples(y, "held out")
    by_task = []
    for task in TASKS:
        own = torch.isin(y, torch.tensor(task.classes))
        by_task.append((learner.predict(x[own], task) == y[own]).double().mean())
    column = learner.columns(TASKS[-1]).index(0)
    sure = learner.predict_proba(x, TASKS[-1])[:, column].mean()
    found = {
        "task-incremental accuracy": torch.stack(by_task).mean().item(),
        "mean probability of class 0": sure.item(),
    }
    try:
        right = learner.predict(x) == y
    except TaskRequired:
        return found
    return {**found, "class-incremental accuracy": right.double().mean().item()}


def moved(name: str, found: Golden, golden: dict[str, Golden]) -> str:
    """What differs, in words; empty where nothing does."""
    if name not in golden:
        return f"{name} has no golden values yet: {HOW}"
    old = golden[name]
    lines = [
        f"{name}: {value} was {old.get(value)}, is now {found.get(value)}"
        for value in {**old, **found}
        if value not in old or found.get(value) != pytest.approx(old[value], rel=TOLERANCE)
    ]
    if lines:
        lines.append(f"If this is meant, {HOW}, and add a line to CHANGELOG.md")
    return "\n".join(lines)


def read() -> dict[str, Golden]:
    return json.loads(FILE.read_text()) if FILE.exists() else {}


def write() -> None:
    torch.set_num_threads(1)  # as in the tests
    golden = {name: run(method) for name, method in METHODS.items()}
    FILE.write_text(json.dumps(golden, indent=2) + "\n")


@pytest.mark.parametrize("name", METHODS)
def test_numbers_are_those_that_were_written(name):
    problem = moved(name, run(METHODS[name]), read())
    if problem:
        pytest.fail(problem, pytrace=False)


def test_every_written_method_exists():
    assert read().keys() <= METHODS.keys(), HOW


def test_a_thousandth_of_a_percent_in_the_step_size_is_noticed():
    golden = {"er": run(ER)}
    assert moved("er", run(ER), golden) == ""
    problem = moved("er", run(ER, ER.Config(lr=0.1 * (1 + 1e-5))), golden)
    assert "er: way from the start was" in problem
    assert "add a line to CHANGELOG.md" in problem


class KeepsTheFirst(ER):
    """Wrong: a memory that, once full, never changes."""

    def update_memory(self, x, y, task_idx):
        free = self.memory.capacity - self.memory.size
        self.memory.append(x[:free], y[:free], task_idx[:free])


def test_other_masks_and_another_memory_are_noticed():
    golden = {"er": run(ER)}
    assert "er: loss of step" in moved("er", run(ER, ER.Config(replay_mask="seen")), golden)
    assert "er: stored labels by slot" in moved("er", run(KeepsTheFirst), golden)


def test_a_method_without_numbers_says_how_to_write_them():
    assert moved("new", run(ER), {}) == f"new has no golden values yet: {HOW}"


if __name__ == "__main__":
    write()
