"""DeepCCG-reservoir: DeepCCG in everything but the memory, which is ER's."""

import pytest
import torch
from pydantic import ValidationError
from scipy import stats

from deepccg.core import Batch, Task
from deepccg.learners.context import Replay
from deepccg.memory import keep_one_per_class, offer_to_reservoir
from deepccg.methods import ER, DeepCCG
from deepccg.methods.deepccg_ablations import DeepCCGReservoir
from deepccg.networks import Flatten

TASKS = (Task(0, (0, 1, 2)), Task(1, (2, 3)), Task(2, (4, 5)), None)
LABELS = ([0, 1, 2, 1, 0], [3, 2, 3, 2, 2, 3], [5, 4, 5], [1, 3, 0, 5])


class Balanced(DeepCCG):
    """Wrong: a reservoir of its own for every class."""

    def __init__(self, network, config=None, **settings):
        fields = {} if config is None else config.model_dump()
        super().__init__(network, DeepCCG.Config(**fields, selector="reservoir"), **settings)


class Restarting(DeepCCGReservoir):
    """Wrong: every task begins to count again, and so takes over the memory."""

    came = 0

    def finish_task(self):
        self.came = 0

    def update_memory(self, x, y, task_idx, *_):
        offer_to_reservoir(self.memory, x, y, task_idx, seen=self.came, generator=self.generator)
        self.came += len(y)


class CountsOnlyStored(DeepCCGReservoir):
    """Wrong: the counter stops when the memory is full, so new examples are stored too often."""

    def update_memory(self, x, y, task_idx, *_):
        size = self.memory.size
        offer_to_reservoir(self.memory, x, y, task_idx, seen=size, generator=self.generator)


def check_memory_is_ers(learner_class, world, make_world):
    """The same draws from the same generator: slot for slot what ER would store."""
    twin = make_world()
    ours = learner_class(world.network(), DeepCCGReservoir.Config(lr=1e-3), memory=9, seed=4)
    ers = ER(twin.network(), ER.Config(lr=1e-3), memory=9, seed=4)
    for task, labels in zip(TASKS * 4, LABELS * 4, strict=True):
        ours.learn(world.batch(labels, task))
        ers.learn(twin.batch(labels, task))
        assert ours.memory.size == ers.memory.size
        for name in ("x", "y", "task"):
            assert torch.equal(ours.memory[name], ers.memory[name])
    held = [(label, task and task.id) for label, task in world.who(ours.memory.x)]
    task_ids = [None, *(task_id for task_id, _ in ours.class_table.tasks)]
    expected = [
        (ours.classes[column], task_ids[row])
        for column, row in zip(ours.memory.y, ours.memory.task, strict=True)
    ]
    assert held == expected


def check_every_example_is_equally_likely(learner_class, runs=80):
    """Six slots, 24 examples of which four are of the second class and come as a second task."""
    length, capacity = 24, 6
    x = torch.arange(length, dtype=torch.float32)[:, None].expand(-1, 2)
    y = (torch.arange(length) >= 20).long()
    tasks = [Task(0, (0,))] * 5 + [Task(1, (1,))]
    counts = torch.zeros(length)
    for seed in range(runs):
        learner = learner_class(
            Flatten(2), DeepCCGReservoir.Config(replay=0), memory=capacity, seed=seed
        )
        for part, labels, task in zip(x.split(4), y.split(4), tasks, strict=True):
            learner.learn(Batch(part, labels, task))
        counts[learner.memory.x[:, 0].long()] += 1
    share = capacity / length
    error = (share * (1 - share) / runs) ** 0.5
    assert bool(((counts / runs - share).abs() < 4.5 * error).all())
    assert stats.chisquare(counts.numpy(), counts.mean().expand(length).numpy()).pvalue > 1e-4


def test_memory_is_ers(world, make_world):
    check_memory_is_ers(DeepCCGReservoir, world, make_world)


def test_every_example_is_equally_likely_whatever_its_class():
    check_every_example_is_equally_likely(DeepCCGReservoir)


@pytest.mark.parametrize("wrong", [Balanced, Restarting, CountsOnlyStored])
def test_other_memories_are_told_apart(world, make_world, wrong):
    with pytest.raises(AssertionError):
        check_memory_is_ers(wrong, world, make_world)
    with pytest.raises(AssertionError):
        check_every_example_is_equally_likely(wrong)


def replaying_by_number(learner_class, numbers_of):
    """Replays the same examples wherever they are stored."""

    class Pinned(learner_class):
        def sample_replay(self, *_):
            numbers = numbers_of(self.memory.x) if self.memory.size else []
            shuffled = sorted(range(len(numbers)), key=lambda slot: numbers[slot] * 7919 % 101)
            drawn = torch.tensor(shuffled[: min(4, len(numbers) // 2)], dtype=torch.int64)
            return Replay(keep_one_per_class(drawn, self.memory.y, self.memory.counts), 0)

    return Pinned


@pytest.mark.parametrize(
    "fields",
    [{}, {"variance": "per-class", "embedding_scale": 1.5}, {"replay_mask": "task"}],
    ids=["default", "per-class", "task mask"],
)
def test_while_nothing_is_dropped_it_is_deepccg(world, make_world, fields):
    """Thirty steps, all of them stored by both; only the order of the slots differs."""
    twin = make_world()
    config = {"lr": 0.05, **fields}
    reservoir = replaying_by_number(DeepCCGReservoir, world.numbers)
    deepccg = replaying_by_number(DeepCCG, world.numbers)
    ours = reservoir(world.network(), DeepCCGReservoir.Config(**config), memory=400)
    theirs = deepccg(twin.network(), DeepCCG.Config(**config), memory=4000)
    for step in range(30):
        task, labels = TASKS[step % 4], LABELS[step % 4]
        batch = world.batch(labels, task)
        one, two = ours.learn(batch), theirs.learn(twin.batch(labels, task))
        assert one.loss == pytest.approx(two.loss, rel=1e-9, abs=1e-12)
        assert (one.replayed, one.extra["terms"]) == (two.replayed, two.extra["terms"])
        proba = ours.predict_proba(batch.x, task)
        torch.testing.assert_close(proba, theirs.predict_proba(batch.x, task))
    assert one.loss > 0
    for mine, other in zip(ours.network.parameters(), theirs.network.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-12)


def test_class_that_lost_its_examples_is_not_predicted(world):
    learner = DeepCCGReservoir(world.network(), DeepCCGReservoir.Config(lr=1e-3), memory=3)
    learner.learn(world.batch([0]))
    while 0 in [label for label, _ in world.who(learner.memory.x)]:
        learner.learn(world.batch([1, 2, 1, 2]))
    proba = learner.predict_proba(world.batch([0, 0, 1]).x)
    assert bool((proba[:, learner.classes.index(0)] == 0).all())
    torch.testing.assert_close(proba.sum(dim=1), torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize(
    "field",
    ["selector", "target", "quota", "selection_features", "lasso_steps", "lasso_start"],
)
def test_fields_of_a_selection_it_does_not_make_are_refused(field):
    value = getattr(DeepCCG.Config(), field)
    with pytest.raises(ValidationError, match=field):
        DeepCCGReservoir.Config(**{field: value})
