"""What a step of each mode passes through the network, counted: no clock, no machine."""

import math

import pytest
import torch

from deepccg.core import Batch, Task
from deepccg.methods import DeepCCG
from deepccg.networks import MLP
from deepccg.networks.build import IMAGES

VECTOR, IMAGE, PER_TASK = (4,), (1, 2, 2), 5


class Bench:
    """A learner with a full memory, in the last of many tasks of five classes."""

    def __init__(
        self, classes: int, per_class: int, shape: tuple[int, ...] = IMAGE, **fields: object
    ) -> None:
        self.shape = shape
        self.generator = torch.Generator().manual_seed(0)
        network = MLP(math.prod(shape), (3,))
        config = DeepCCG.Config(lr=1e-6, embedding_scale=2.0, replay_mask="task", **fields)
        self.learner = DeepCCG(network, config, memory=classes * per_class, classes=range(classes))
        tasks = [
            Task(n, tuple(range(PER_TASK * n, PER_TASK * (n + 1))))
            for n in range(classes // PER_TASK)
        ]
        for task in tasks:
            self.learner.learn(self.batch(torch.tensor(task.classes).repeat(per_class), task))
        self.task = tasks[-1]
        self.calls: list[int] = []
        network.register_forward_pre_hook(lambda _, args: self.calls.append(len(args[0])))

    def batch(self, y: torch.Tensor, task: Task) -> Batch:
        return Batch(torch.randn(len(y), *self.shape, generator=self.generator), y, task)

    def step(self) -> int:
        """Images passed through the network, without the ten of the batch and the ten replayed."""
        picks = torch.randint(PER_TASK, (10,), generator=self.generator)
        self.calls.clear()
        self.learner.learn(self.batch(torch.tensor(self.task.classes)[picks], self.task))
        return sum(self.calls) - 20

    def images(self, steps: int = 30) -> float:
        return sum(self.step() for _ in range(steps)) / steps


MODES = {"exact": {}, "sampled": {"posterior": "sampled"}}


@pytest.mark.parametrize(
    ("mode", "per_class", "most"),
    [("exact", 10, 470), ("exact", 30, 1430), ("sampled", 10, 48), ("sampled", 30, 48)],
)
def test_images_embedded_per_step_for_a_hundred_classes(mode, per_class, most):
    """Ten replays meet about eight of twenty tasks: with the batch's, 43 classes. Or one: 11."""
    bench = Bench(100, per_class, **MODES[mode])
    found = bench.images()
    assert 0.75 * most < found < most


def test_a_sample_costs_no_more_for_more_classes_or_examples():
    """Four of each class in the batch's task and that of the replay, however many there are."""
    bench = Bench(100, 10, **MODES["sampled"], mean_gradient=True)
    usual = [bench.step() + 20 for _ in range(30)]
    assert set(usual) <= {20 + 4 * 5 * tasks for tasks in (1, 2, 3)}  # a block may meet two
    few = sum(usual) / 30
    for classes, per_class in ((400, 10), (100, 30)):
        many = 20 + Bench(classes, per_class, **MODES["sampled"]).images()
        assert many == pytest.approx(few, rel=0.1)


@pytest.mark.parametrize(("classes", "per_class"), [(20, 10), (100, 10), (100, 30), (400, 10)])
def test_leaving_one_out_embeds_batch_and_replay_alone(classes, per_class):
    """In one pass: ten classes, four of each, whatever is stored."""
    fields = {"posterior": "leave-one-out", "replay": 40, "mean_gradient": True}
    bench = Bench(classes, per_class, **fields)
    for _ in range(5):
        bench.step()
        assert bench.calls == [10 + 4 * 2 * PER_TASK]


@pytest.mark.parametrize("mode", MODES)
def test_a_step_passes_once_with_gradient_and_in_chunks_without(mode):
    bench = Bench(100, 10, **MODES[mode])
    for _ in range(5):
        images = bench.step()
        assert len(bench.calls) == 1 + -(-images // IMAGES)
        assert max(bench.calls) <= IMAGES


@pytest.mark.parametrize("mode", MODES)
def test_vectors_are_embedded_in_one_piece(mode):
    bench = Bench(100, 10, VECTOR, **MODES[mode])
    for _ in range(5):
        bench.step()
        assert len(bench.calls) == 2


def test_a_full_memory_is_written_in_place():
    bench = Bench(20, 10, **MODES["sampled"])
    columns = bench.learner.memory._columns
    before = {name: column.data_ptr() for name, column in columns.items()}
    for _ in range(10):
        bench.step()
    assert before == {name: column.data_ptr() for name, column in columns.items()}
    assert set(before) == {"x", "y", "task", "cached_embedding"}
