"""EntropySS: classes stay balanced, and inside a class the memory only spreads out."""

import math
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch

from deepccg.core import Batch, Task
from deepccg.methods import ER
from deepccg.methods.entropy_ss import EntropySS
from deepccg.networks import Flat

PAIRS = (Task(0, (0, 1)), Task(1, (2, 3)))


class RandomMember(EntropySS):
    """Wrong: anyone of the largest class leaves."""

    def leaving(self, distances):
        return int(torch.randint(len(distances), (1,), generator=self.generator))


class StaleEmbeddings(EntropySS):
    """Wrong in the space of embeddings: keeps those of earlier networks."""

    def _forget(self):
        pass


class FirstOfEqual(EntropySS):
    """Wrong: ties go to the lowest slot."""

    def _draw(self, candidates):
        return int(candidates[0])


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def spread(points):
    """mean log distance to the nearest other, by loops over lists."""
    nearest = [
        min(math.dist(p, q) for j, q in enumerate(points) if j != i) for i, p in enumerate(points)
    ]
    return float(np.mean([math.log(eps + 1e-12) for eps in nearest]))


def check_the_estimate_never_falls(learner_class):
    """One class, one example at a time: the memory after is at least as spread out as before."""
    generator = torch.Generator().manual_seed(0)
    learner = learner_class(Flat(2), learner_class.Config(lr=1e-9), memory=8)
    estimates = []
    for _ in range(60):
        x = torch.randn(1, 2, generator=generator, dtype=torch.float32)
        learner.learn(Batch(x, torch.tensor([5])))
        if learner.memory.size == 8:
            estimates.append(spread(learner.memory.x.tolist()))
    assert all(late >= early - 1e-6 for early, late in pairwise(estimates))
    assert estimates[-1] > estimates[0] + 0.3


def check_who_leaves(learner_class, world, space):
    """The best of all memories one removal away, tried one by one, under the present network."""
    config = learner_class.Config(lr=0.2, space=space)
    learner = learner_class(world.network(), config, memory=9)
    replaced = 0
    for step in range(60):
        batch = world.batch([(0, 1, 0, 2)[step % 4]])
        before_x, before_y = learner.memory.x.clone(), learner.memory.y.clone()
        learner.learn(batch)
        if len(before_y) < 9:
            continue
        column = learner.class_table._column[int(batch.y)]
        x, y = torch.cat([before_x, batch.x]), torch.cat([before_y, torch.tensor([column])])
        counts = Counter(y.tolist())
        kept = set(world.numbers(learner.memory.x))
        gone = [i for i, number in enumerate(world.numbers(x)) if number not in kept]
        assert len(gone) == 1
        victim = int(y[gone[0]])
        assert counts[victim] == max(counts.values())
        assert victim == column or counts[column] < counts[victim]
        members = (y == victim).nonzero().flatten().tolist()
        points = (learner.embed(x) if space == "embeddings" else x).tolist()
        left = {i: spread([points[j] for j in members if j != i]) for i in members}
        assert left[gone[0]] == pytest.approx(max(left.values()), abs=1e-9)
        replaced += gone[0] < 9
    assert replaced > 10


def check_equal_examples_are_drawn_from(learner_class):
    """Of an example and its copy either one leaves: seen by the task each was stored with."""
    points = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    left = set()
    for seed in range(12):
        learner = learner_class(Flat(2), learner_class.Config(lr=1e-9), memory=3, seed=seed)
        learner.learn(Batch(points, torch.zeros(3, dtype=torch.int64), Task(0, (0, 1))))
        learner.learn(Batch(points[1:2], torch.zeros(1, dtype=torch.int64), Task(1, (0, 2))))
        assert sorted(learner.memory.x.tolist()) == sorted(points.tolist())
        left.add(tuple(learner.memory.task.tolist()))
    assert left == {(1, 1, 1), (1, 2, 1)}


def test_the_estimate_never_falls_inside_a_class():
    check_the_estimate_never_falls(EntropySS)
    with pytest.raises(AssertionError):
        check_the_estimate_never_falls(RandomMember)


@pytest.mark.parametrize("space", ["pixels", "embeddings"])
def test_who_leaves_is_who_adds_least(make_world, space):
    check_who_leaves(EntropySS, make_world(), space)
    with pytest.raises(AssertionError):
        check_who_leaves(RandomMember, make_world(), space)


def test_embeddings_are_those_of_the_present_network(make_world):
    with pytest.raises(AssertionError):
        check_who_leaves(StaleEmbeddings, make_world(), "embeddings")


def test_one_of_two_equal_examples_leaves_drawn_by_the_generator():
    check_equal_examples_are_drawn_from(EntropySS)
    with pytest.raises(AssertionError):
        check_equal_examples_are_drawn_from(FirstOfEqual)


def check_balance(learner_class, world):
    """A class of which anything was given up is at most one example smaller than the largest."""
    learner = learner_class(world.network(), learner_class.Config(lr=1e-3), memory=14)
    for labels in [[0] * 5] * 4 + [[1, 1, 2]] * 6 + [[3, 0, 0, 0]] * 8:
        learner.learn(world.batch(labels))
        stored = Counter(learner.classes[column] for column in learner.memory.y)
        supply = Counter(label for label, _ in world.log)
        assert sum(stored.values()) == min(sum(supply.values()), 14)
        cut = [stored[label] for label in supply if stored[label] < supply[label]]
        assert all(count >= max(stored.values()) - 1 for count in cut)
    assert sorted(stored.values()) == [3, 3, 4, 4]


def test_classes_stay_balanced(make_world):
    class Reservoir(EntropySS):
        """Wrong: ER's memory."""

        update_memory = ER.update_memory

    check_balance(EntropySS, make_world())
    with pytest.raises(AssertionError):
        check_balance(Reservoir, make_world())


def test_a_memory_smaller_than_the_classes_keeps_one_of_each_it_has(world):
    for space in ("pixels", "embeddings"):
        learner = EntropySS(world.network(), EntropySS.Config(space=space), memory=2)
        for label in (0, 1, 2, 3, 0, 2):
            learner.learn(world.batch([label]))
        assert sorted(learner.memory.y.tolist()) == [0, 1]


def test_kept_distances_are_those_of_the_memory(world):
    """After any number of replacements, and after the state of another run was loaded."""
    learner = EntropySS(world.network(), EntropySS.Config(lr=1e-3), memory=10)
    saved = None
    for step in range(50):
        learner.learn(world.batch([step % 2, 2 * (step // 25), 1], PAIRS[0] if step < 25 else None))
        saved = learner.state_dict() if step == 30 else saved
        for column, within in learner._within.items():
            slots = (learner.memory.y == column).nonzero().flatten()
            assert torch.equal(within.slots, slots)
            points = learner.memory.x[slots]
            torch.testing.assert_close(within.distances, (points[:, None] - points).norm(dim=2))
    assert len(learner._within) > 1
    learner.load_state_dict(saved)
    twin = EntropySS(world.network(), EntropySS.Config(lr=1e-3), memory=10)
    twin.load_state_dict(saved)
    for step in range(20):
        batch = world.batch([step % 3, 1])
        assert learner.learn(batch) == twin.learn(batch)
    assert torch.equal(learner.memory.x, twin.memory.x)
    held = learner.memory_usage().bytes
    assert held["distances"] == 8 * sum(n**2 for n in Counter(twin.memory.y.tolist()).values())
