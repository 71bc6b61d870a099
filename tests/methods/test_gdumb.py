"""GDumb: a greedy sampler, and a learner that begins anew each time it is asked."""

import copy
import json
import math
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare
from torch import nn

from deepccg.core import Batch, Diverged, Task, make_generator
from deepccg.experiment import protocol_line, run
from deepccg.learners.teacher import Teacher
from deepccg.memory import offer_to_reservoir
from deepccg.methods import gdumb
from deepccg.methods.gdumb import GDumb, annealed, crop_and_mirror, cutmix

FEW = GDumb.Config(passes=3)


# The sampler


def random_labels(seed, steps=30):
    """Batches of ever more classes; in each the oldest classes come first."""
    generator = make_generator(seed, "labels")
    for step in range(steps):
        known = 1 + step // 4
        yield sorted(torch.randint(known, (5,), generator=generator).tolist())


def greedy(capacity, labels):
    """Numbers of the examples accepted, and how many each class holds, one example at a time."""
    accepted, stored, met = set(), Counter(), set()
    for number, label in enumerate(labels):
        new = label not in met
        met.add(label)
        if capacity == 0 or not (new or stored[label] < capacity // len(met)):
            continue
        if sum(stored.values()) == capacity:
            largest = max(stored.values())
            stored[min(label for label in stored if stored[label] == largest)] -= 1
        stored[label] += 1
        accepted.add(number)
    return accepted, +stored


def check_sampler(learner_class, make_world, capacity):
    for seed in range(4):
        check_stream(learner_class, make_world(), seed, capacity)


def check_stream(learner_class, world, seed, capacity):
    learner = learner_class(world.network(), FEW, memory=capacity, seed=seed, classes=range(8))
    labels = []
    for batch in random_labels(seed):
        learner.learn(world.batch(batch))
        labels += batch
        accepted, stored = greedy(capacity, labels)
        held = world.numbers(learner.memory.x) if capacity else []
        assert len(set(held)) == len(held)
        assert set(held) <= accepted
        assert Counter(labels[number] for number in held) == stored
        assert learner.memory.y.tolist() == [labels[number] for number in held]


class CountsTheWholeBatch(GDumb):
    """Wrong: classes further back in the batch already take their share."""

    def slot_for(self, column, met):
        return super().slot_for(column, met | set(self.class_table.arrival))


class Reservoir(GDumb):
    """Wrong: every example of the stream is as likely."""

    def update_memory(self, x, y, task_idx):
        seen = int(self.class_table.seen.sum()) - len(y)
        offer_to_reservoir(self.memory, x, y, task_idx, seen, self.generator)


class DropsTheOldest(GDumb):
    """Wrong: the first example of the largest class gives way."""

    def slot_for(self, column, met):
        slot = super().slot_for(column, met)
        if len(slot) and int(slot) < self.memory.size:
            return (self.memory.y == self.memory.y[slot]).nonzero()[0]
        return slot


@pytest.mark.parametrize("capacity", [0, 3, 10, 32])
def test_the_memory_is_greedy_and_balanced(make_world, capacity):
    check_sampler(GDumb, make_world, capacity)


@pytest.mark.parametrize("wrong", [CountsTheWholeBatch, Reservoir])
def test_another_sampler_is_noticed(make_world, wrong):
    with pytest.raises(AssertionError):
        check_sampler(wrong, make_world, 24)


def dropped_by(learner_class, world, seed):
    """Which of the 6 stored examples of class 0 gives way to the first one of class 1."""
    learner = learner_class(world.network(), FEW, memory=6, seed=seed)
    learner.learn(world.batch([0] * 6))
    before = world.numbers(learner.memory.x)
    learner.learn(world.batch([1]))
    (gone,) = set(before) - set(world.numbers(learner.memory.x))
    return before.index(gone)


def evenness(learner_class, make_world):
    drops = Counter(dropped_by(learner_class, make_world(), seed) for seed in range(300))
    return chisquare([drops[place] for place in range(6)]).pvalue


def test_a_uniformly_random_example_of_the_largest_class_gives_way(make_world):
    assert evenness(GDumb, make_world) > 1e-3
    assert evenness(DropsTheOldest, make_world) < 1e-6


def test_a_class_keeps_its_first_examples(world):
    learner = GDumb(world.network(), FEW, memory=6)
    for labels in ([0, 1, 1, 0], [0, 1, 0, 1], [1, 0, 0, 1]):
        learner.learn(world.batch(labels))
    assert sorted(world.numbers(learner.memory.x)) == [0, 1, 2, 3, 4, 5]


# The learner


def by_hand(learner, initial):
    """Scores of the memory by a plain loop from the weights that the learner was given."""
    network, head = copy.deepcopy(initial), copy.deepcopy(learner.head)
    weights = [*network.parameters(), *head.parameters()]
    highest = learner.config.lr
    optimiser = torch.optim.SGD(weights, lr=highest, momentum=0.9, weight_decay=1e-6)
    cosines = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(
        optimiser, T_0=1, T_mult=2, eta_min=highest / 100
    )
    generator = torch.Generator()
    generator.set_state(learner.generator.get_state())
    torch.randint(2**31, (1,), generator=generator)
    x, y = learner.memory.x, learner.memory.y
    for number in range(learner.config.passes):
        if number == 0:
            optimiser.param_groups[0]["lr"] = highest / 10
        elif number == 1:
            optimiser.param_groups[0]["lr"] = highest
        else:
            cosines.step()
        for rows in torch.randperm(len(y), generator=generator).split(16):
            seen = (learner.class_table.seen > 0).nonzero().flatten()
            logits = head(network(x[rows]))[:, seen]
            target = (y[rows][:, None] == seen).long().argmax(dim=1)
            loss = F.cross_entropy(logits, target)
            optimiser.zero_grad()
            loss.backward()
            norm = torch.cat([w.grad.flatten() for w in weights]).norm()
            for weight in weights:
                weight.grad *= min(1, 10 / norm.item())
            optimiser.step()
    with torch.no_grad():
        return head(network(x))


def check_training(learner_class, world):
    """At several moments, also when it has answered before."""
    network = world.network()
    initial = copy.deepcopy(network)
    config = learner_class.Config(passes=7, lr=0.3)
    learner = learner_class(network, config, memory=40, classes=(5, 0, 1, 2))
    task = Task(0, (0, 1, 2))
    for step in range(6):
        learner.learn(world.batch([0, 1, 2, 1, 0, 2, 0, 2], task if step % 2 else None))
        seen = learner.class_table.seen > 0
        found = learner.scores(learner.memory.x)[:, seen]
        torch.testing.assert_close(found, by_hand(learner, initial)[:, seen], rtol=1e-6, atol=1e-9)


class NeverReset(GDumb):
    """Wrong, as in public code: what it begins with are references to the trained weights."""

    def train_anew(self):
        trained = super().train_anew()
        self.network.load_state_dict(trained.network.state_dict())
        return trained


class NeverTrainedAgain(GDumb):
    """Wrong: the first answer is kept."""

    def learn(self, batch):
        kept = self._trained
        info = super().learn(batch)
        self._trained = kept
        return info


class MasksByTask(GDumb):
    """Wrong: an example is compared with the classes of its own task only."""

    def loss_of(self, slots, network, head, generator):
        seen, self.class_table.seen = self.class_table.seen, self.class_table.seen.clone()
        self.class_table.seen[self.memory.y[slots].min()] = 0
        loss = super().loss_of(slots, network, head, generator)
        self.class_table.seen = seen
        return loss


def test_each_answer_is_that_of_a_network_trained_from_its_beginning(make_world):
    check_training(GDumb, make_world())
    for wrong in (NeverReset, NeverTrainedAgain, MasksByTask):
        with pytest.raises(AssertionError):
            check_training(wrong, make_world())


def test_step_sizes_are_those_of_cosines_that_restart():
    weight = nn.Parameter(torch.zeros(1))
    optimiser = torch.optim.SGD([weight], lr=0.05)
    cosines = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimiser, 1, 2, eta_min=0.0005)
    found = [0.05 * annealed(number) for number in range(256)]
    assert found[0] == pytest.approx(0.005)
    for number in range(1, 256):
        assert found[number] == pytest.approx(optimiser.param_groups[0]["lr"]), number
        optimiser.step()
        cosines.step()
    assert annealed(256) == 1  # the published number of passes ends with a cycle


def test_the_network_given_and_the_generators_are_left_alone(world):
    class Dropping(nn.Module):
        dim = 3

        def __init__(self):
            super().__init__()
            self.inner, self.norm = nn.Linear(5, 3).double(), nn.BatchNorm1d(3).double()

        def forward(self, x):
            return F.dropout(self.norm(self.inner(x)), 0.5, self.training)

    torch.manual_seed(7)
    network = Dropping()
    learner = GDumb(network, FEW, memory=8)
    learner.learn(world.batch([0, 1, 2, 3, 0, 1]))
    weights, drawn = copy.deepcopy(network.state_dict()), learner.generator.get_state()
    global_state = torch.get_rng_state()
    with torch.inference_mode():
        first = learner.predict_logits(learner.memory.x)
    assert torch.equal(global_state, torch.get_rng_state())
    learner._trained = None
    torch.rand(5)  # what others draw does not matter
    assert torch.equal(first, learner.predict_logits(learner.memory.x))
    assert all(torch.equal(value, weights[name]) for name, value in network.state_dict().items())
    assert torch.equal(learner.generator.get_state(), drawn)


def test_it_is_trained_once_for_all_questions_between_two_steps(world, monkeypatch):
    learner = GDumb(world.network(), FEW, memory=8)
    trained = []
    train = GDumb.train_anew
    monkeypatch.setattr(GDumb, "train_anew", lambda self: trained.append(1) or train(self))
    for step in range(1, 4):
        learner.learn(world.batch([0, 1, 2]))
        learner.predict(learner.memory.x)
        learner.predict_logits_each(learner.memory.x, [None, Task(0, (0, 1))])
        learner.classifier()(learner.representation(learner.memory.x))
        learner.inference_module()
        assert len(trained) == step


def test_without_memory_it_answers_as_the_untrained_network(world):
    learner = GDumb(world.network(), FEW, memory=0)
    batch = world.batch([0, 1])
    learner.learn(batch)
    expected = learner.head(learner.network(batch.x))
    assert torch.equal(learner.predict_logits(batch.x), expected.detach())


@pytest.mark.parametrize("lr", [1e30, 1e39, 1e300])
def test_a_step_size_too_large_is_one_line(lr):
    network = nn.Linear(4, 3)
    network.dim = 3
    learner = GDumb(network, GDumb.Config(lr=lr, passes=5), memory=8)
    x = torch.randn(4, 4, generator=make_generator(0))
    learner.learn(Batch(x, torch.tensor([0, 1, 2, 3])))
    with pytest.raises(Diverged, match="try a smaller lr") as caught:
        learner.predict(x)
    assert "\n" not in str(caught.value)


# Images


def test_images_are_cropped_from_a_black_frame_and_mirrored():
    x = torch.randint(1, 256, (40, 2, 6, 5), generator=make_generator(0)).byte()
    found = crop_and_mirror(x, make_generator(1))
    kinds = Counter()
    for image, view in zip(x, found, strict=True):
        frame = F.pad(image, (4,) * 4)
        crops = {
            (top, left): frame[:, top : top + 6, left : left + 5]
            for top in range(9)
            for left in range(9)
        }
        mirrored = {(*place, True): crop.flip(2) for place, crop in crops.items()}
        plain = {(*place, False): crop for place, crop in crops.items()}
        (place, *_) = (at for at, crop in (plain | mirrored).items() if torch.equal(view, crop))
        kinds[place] += 1
    assert len({top for top, _, _ in kinds}) > 5
    assert len({left for _, left, _ in kinds}) > 5
    assert 8 < sum(count for (_, _, mirrored), count in kinds.items() if mirrored) < 32


def test_a_mixed_image_has_as_much_of_the_other_as_it_says():
    x = torch.arange(1, 9.0)[:, None, None, None].expand(8, 3, 10, 14).contiguous()
    shares = []
    for seed in range(300):
        mixed, other, share = cutmix(x, make_generator(seed))
        for number, image in enumerate(mixed):
            own = image == number + 1
            assert bool((own | (image == int(other[number]) + 1)).all())
            if int(other[number]) != number:
                assert own.double().mean().item() == pytest.approx(share)
        shares.append(share)
    assert bool((x[:, 0, 0, 0] == torch.arange(1, 9.0)).all())  # not changed in place
    assert 0.4 < sum(share == 1 for share in shares) / 300 < 0.65
    assert min(shares) < 0.4


def test_the_loss_of_a_mixed_batch_is_shared_between_both_labels(monkeypatch):
    network = nn.Sequential(nn.Flatten(), nn.Linear(2 * 8 * 8, 3))
    network.dim = 3
    learner = GDumb(network, FEW, memory=8)
    x = torch.rand(4, 2, 8, 8, generator=make_generator(0))
    learner.learn(Batch(x, torch.tensor([0, 1, 2, 1])))
    other = torch.tensor([1, 2, 3, 0])
    monkeypatch.setattr(gdumb, "crop_and_mirror", lambda x, _: x)
    monkeypatch.setattr(gdumb, "cutmix", lambda x, _: (x, other, 0.7))
    slots = torch.arange(4)
    found = learner.loss_of(slots, network, learner.head, make_generator(0))
    logits, y = learner.head(network(learner.memory.x)), learner.memory.y
    expected = 0.7 * F.cross_entropy(logits, y) + 0.3 * F.cross_entropy(logits, y[other])
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


# In a run

QUICK = {
    "dataset": "digits",
    "stream.examples_per_class": 20,
    "memory": 30,
    "method": "gdumb",
    "method.passes": 4,
}


def test_the_audit_prints_the_passes_over_memory(tmp_path):
    result = run(directory=tmp_path / "run", **QUICK)
    assert result.audit["memory"]["passes"] == 4
    assert "offline learner, 4 passes over memory at an evaluation" in protocol_line(result.audit)
    assert result.audit["passes"]["learning"]["forward_images"] == 0
    trained = result.audit["passes"]["evaluation"]["backward_images"]
    assert trained == 4 * 30 * len(result.evaluations)  # memory is full at the end of every task
    scored = sum(evaluation.images for evaluation in result.evaluations)
    assert result.audit["passes"]["evaluation"]["forward_images"] == scored + trained
    followed = run(directory=tmp_path / "followed", **QUICK, **{"evaluation.shift_images": 10})
    assert followed.audit["memory"]["passes"] == 4
    replay = {"dataset": "digits", "stream.examples_per_class": 20, "memory": 30, "method": "er"}
    other = run(directory=tmp_path / "er", **replay)
    assert "passes" not in other.audit["memory"]
    assert "offline learner" not in protocol_line(other.audit)


class Interrupted(Exception):
    """Stands for whatever ends a process."""


def test_what_is_counted_does_not_depend_on_an_interruption(tmp_path):
    """Scored after each step: most of them do not change the memory."""

    def stop(now, _steps, _info):
        if now == 11:
            raise Interrupted

    settings = {**QUICK, "evaluation.every": 1, "checkpoint_every": 1, "memory": 10}
    with pytest.raises(Interrupted):
        run(directory=tmp_path / "twice", progress=stop, **settings)
    twice, once = (run(directory=tmp_path / name, **settings) for name in ("twice", "once"))
    assert json.dumps(twice.audit) == json.dumps(once.audit)
    assert twice.evaluations == once.evaluations
    assert math.isfinite(once.summary["class_accuracy"])


def test_the_copy_counts_as_bytes_whether_it_is_there_or_not(world):
    learner = GDumb(world.network(), FEW, memory=4)
    learner.learn(world.batch([0, 1]))
    before = learner.memory_usage()
    learner.predict(learner.memory.x)
    assert learner.memory_usage() == before
    assert before.bytes["network copy"] == Teacher(learner.network, learner.head).bytes
