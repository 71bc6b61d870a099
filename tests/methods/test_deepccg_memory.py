"""What DeepCCG stores: quotas, alignment, and the mean it selects for."""

from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import Task
from deepccg.learners.memory_selection import Selection
from deepccg.methods import DeepCCG

SELECTORS = ("greedy", "swap", "lasso", "reservoir", "random")


def learner_on(world, memory=10, classes=(), learner_class=DeepCCG, **fields):
    fields = {"lr": 1e-3, "lasso_steps": 5, "embedding_scale": 1.0, **fields}
    return learner_class(world.network(), DeepCCG.Config(**fields), memory=memory, classes=classes)


def stored(world, learner) -> Counter:
    """How many examples of each label memory holds, by what the examples say themselves."""
    if learner.memory.size == 0:
        return Counter()
    return Counter(label for label, _ in world.who(learner.memory.x))


def assert_aligned(world, learner):
    memory = learner.memory
    if memory.size == 0:
        return
    task_of = [None, *(task_id for task_id, _ in learner.class_table.tasks)]
    held = [
        (learner.classes[column], task_of[row])
        for column, row in zip(memory.y, memory.task, strict=True)
    ]
    truth = [(label, task and task.id) for label, task in world.who(memory.x)]
    assert held == truth
    assert len(set(world.numbers(memory.x))) == memory.size


def fair_share(total: int, arrived: list[int], sharers: int) -> dict[int, int]:
    """Deal ``total`` slots out one by one, round after round, to classes as they arrived."""
    order = [*arrived, *range(-sharers, -len(arrived))]  # those still to come take part
    shares = Counter(order[slot % len(order)] for slot in range(total)) if order else {}
    return {label: shares.get(label, 0) for label in arrived}


@pytest.mark.parametrize("declared", [(), (3, 2, 1, 0)], ids=["undeclared", "declared"])
@pytest.mark.parametrize("quota", ["fixed", "growing"])
@pytest.mark.parametrize("selector", SELECTORS)
def test_ten_slots_for_four_classes_go_to_the_first_seen(world, selector, quota, declared):
    learner = learner_on(world, 10, declared, selector=selector, quota=quota)
    arrived = []
    for label in (2, 0, 3, 1):
        arrived.append(label)
        for _ in range(3):
            learner.learn(world.batch([*arrived, *arrived, label, label, label]))
        sharers = 4 if declared and quota == "fixed" else len(arrived)
        assert stored(world, learner) == fair_share(10, arrived, sharers)
        assert_aligned(world, learner)
    assert [stored(world, learner)[label] for label in (2, 0, 3, 1)] == [3, 3, 2, 2]


def test_a_task_names_its_classes_before_they_come(world):
    learner = learner_on(world, 10)
    for _ in range(4):
        learner.learn(world.batch([7, 7, 7, 7], Task(0, (5, 6, 7))))
    assert stored(world, learner) == {7: 4}  # ten for three classes; the first seen gets four


@pytest.mark.parametrize("selector", SELECTORS)
def test_examples_stay_whole_when_a_new_class_takes_half_the_memory(world, selector):
    """More leave than enter, from slots all over the memory: the others close the gaps."""
    learner = learner_on(world, 12, selector=selector)
    for step in range(6):
        learner.learn(world.batch([0, 0], Task(step, (0,))))
    learner.learn(world.batch([1], Task(6, (1,))))
    assert stored(world, learner) == {0: 6, 1: 1}
    assert_aligned(world, learner)


def test_more_classes_than_slots_leave_the_last_ones_out(world):
    learner = learner_on(world, 3)
    for _ in range(3):
        learner.learn(world.batch([4, 3, 2, 1, 0]))
    assert stored(world, learner) == {4: 1, 3: 1, 2: 1}


streams = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(0, 2), min_size=1, max_size=6)),
    min_size=1,
    max_size=10,
)


@given(
    streams,
    st.integers(0, 9),
    st.sampled_from(SELECTORS),
    st.sampled_from(["fixed", "growing"]),
    st.lists(st.integers(0, 6), unique=True, max_size=3),
    st.sampled_from(["before", "after"]),
)
def test_any_stream_respects_quotas_and_keeps_examples_whole(
    make_world, stream, total, selector, quota, declared, features
):
    world = make_world()
    learner = learner_on(
        world, total, declared, selector=selector, quota=quota, selection_features=features
    )
    arrived: list[int] = []
    for window, picks in stream:
        task = None if window == 3 else Task(window, (window, window + 1, window + 2))
        labels = [window + pick for pick in picks]
        before = stored(world, learner)
        old = set(world.numbers(learner.memory.x)) if learner.memory.size else set()
        batch = world.batch(labels, task)
        learner.learn(batch)

        arrived += [label for label in dict.fromkeys(labels) if label not in arrived]
        sharers = len(learner.classes) if quota == "fixed" else len(arrived)
        shares = fair_share(total, arrived, sharers)
        now = stored(world, learner)
        for label in arrived:
            came = before[label] + labels.count(label)
            assert now[label] == min(shares[label], came)
        new = set(world.numbers(learner.memory.x)) if learner.memory.size else set()
        assert new <= old | set(world.numbers(batch.x))
        assert learner.memory.size <= total
        assert_aligned(world, learner)


class Watched(Selection):
    """Keeps what it was asked."""

    asked = None

    def select(self, candidates):
        self.asked = candidates
        return super().select(candidates)


class Recorded(DeepCCG):
    """Keeps what the selection was asked."""

    def learn(self, batch):
        self.selection = Watched(self.config, self.memory, self.class_table, self.generator)
        self.held = self.memory.x.clone()
        with torch.no_grad():
            self.z_held = self.network(self.held) if self.memory.size else None
            self.z_new = self.network(batch.x)
        return super().learn(batch)

    @property
    def asked(self):
        return self.selection.asked


@pytest.mark.parametrize("target", ["evidence", "printed"])
def test_selection_aims_at_the_mean_of_all_evidence(world, target):
    """N_c counts every example of the class that came before, stored or not (Fact 3)."""
    learner = learner_on(world, 6, learner_class=Recorded, target=target, embedding_scale=2.0)
    came: Counter = Counter()
    for _ in range(6):
        batch = world.batch([0, 1, 1, 1, 0])
        learner.learn(batch)
        if came:
            assert learner.asked.seen.tolist() == [came[0], came[1]]
            owners = [label for label, _ in world.who(learner.held)]
            for column, label in enumerate((0, 1)):
                old = torch.stack(
                    [z for z, owner in zip(learner.z_held, owners, strict=True) if owner == label]
                )
                new = learner.z_new[batch.y == label]
                weight = came[label] if target == "evidence" else len(old)
                expected = (weight * old.mean(dim=0) + new.sum(dim=0)) / (weight + len(new))
                torch.testing.assert_close(learner.asked.target[column], 2.0 * expected)
        came.update(batch.y.tolist())
    assert came[1] > learner.memory.size


@pytest.mark.parametrize(("features", "moved"), [("before", False), ("after", True)])
def test_selection_uses_embeddings_from_before_or_after_the_step(world, features, moved):
    learner = learner_on(world, 4, learner_class=Recorded, lr=0.1, selection_features=features)
    for _ in range(4):
        learner.learn(world.batch([0, 1, 1, 0]))
    z = learner.asked.z[learner.asked.real]
    ours = torch.cat([learner.z_held, learner.z_new])
    distance = torch.cdist(z, ours).amin(dim=1)
    assert bool((distance > 1e-9).all()) == moved
    if not moved:
        assert bool((distance < 1e-12).all())


def test_selectors_that_minimise_stay_nearer_the_target_than_chance(make_world):
    """Squared distance between the stored mean and the mean asked for, averaged over streams."""

    def miss(selector: str, seed: int) -> float:
        world = make_world(seed)
        learner = learner_on(world, 8, learner_class=Recorded, selector=selector)
        total = 0.0
        for _ in range(6):
            learner.learn(world.batch([0, 1, 0, 1, 0, 1]))
            if learner.asked is not None:
                with torch.no_grad():
                    z = learner.network(learner.memory.x)
                for column in (0, 1):
                    mean = z[learner.memory.y == column].mean(dim=0)
                    total += float((mean - learner.asked.target[column]).square().sum())
        return total

    average = {s: sum(miss(s, seed) for seed in range(5)) for s in ("greedy", "swap", "random")}
    assert average["swap"] <= average["greedy"] * 1.2
    assert average["greedy"] < 0.7 * average["random"]
