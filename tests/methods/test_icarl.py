"""iCaRL: targets column by column, herded exemplars, nearest means, and the copy of the past."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from deepccg.core import Batch, State, StateMismatch, Task
from deepccg.methods.icarl import HerdingSelection, ICaRL
from deepccg.networks import MLP, Flatten

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])
STREAM = [(task, labels) for task, labels in zip(WINDOWS, LABELS, strict=True) for _ in range(4)]


class DistilsReseen(ICaRL):
    """Wrong: a class seen before is taught by the old network though this task has labels of it."""

    def old_columns(self):
        return self.past.columns


class OldAlways(ICaRL):
    """Wrong: the old network is taken again at every step."""

    def learn(self, batch):
        if self.past.teacher is not None:
            self.finish_task()
        return super().learn(batch)


class Stale(ICaRL):
    """Wrong: means once computed are kept while the network moves."""

    def learn(self, batch):
        kept = self._means
        info = super().learn(batch)
        self._means = kept
        return info


class Repicks(ICaRL):
    """Wrong: herding picks the nearest candidate again and again."""

    def __init__(self, *args, **fields):
        super().__init__(*args, **fields)

        class Repeating(HerdingSelection):
            def select(self, candidates):
                apart = candidates.z - candidates.target[:, None]
                cost = apart.square().sum(dim=2).masked_fill(~candidates.real, torch.inf)
                return F.one_hot(cost.argmin(dim=1), cost.shape[1]).bool() & candidates.real

        self.selection = Repeating(
            self.selection.config, self.memory, self.class_table, self.generator
        )


class RawFeatures(ICaRL):
    """Wrong: features of any length."""

    def shaped(self, z):
        return z


def recorded(learner_class):
    """The class, keeping what a step began with."""

    class Recorded(learner_class):
        def draw_replay(self):
            self.before = copy.deepcopy(modules_of(self))
            slots = super().draw_replay()
            self.replay = self.memory.x[slots].clone()
            return slots

    return Recorded


def modules_of(learner):
    return {"network": learner.network, "head": learner.head}


def logits_of(modules, x):
    return modules["head"](modules["network"](x))


def expected_loss(world, learner, batch, old, old_classes, config):
    """One sigmoid after the other. ``old``: the modules at the end of the last task, if any."""
    outputs, x = learner.classes, batch.x
    x = torch.cat([x, learner.replay]) if len(learner.replay) else x
    masks = [config.train_mask] * len(batch) + [config.replay_mask] * len(learner.replay)
    met = {c for _, task in world.log for c in (task.classes if task else ())}
    seen = {label for label, _ in world.log}
    columns = {"task": met | seen, "seen": seen, "all": set(outputs)}
    current = set(batch.task.classes) if batch.task else seen
    terms = []
    for row, mask, (label, _) in zip(x, masks, world.who(x), strict=True):
        now = dict(zip(outputs, logits_of(learner.before, row[None])[0], strict=True))
        losses = []
        for c in columns[mask]:
            target = float(c == label)
            if c in old_classes - current:
                target = torch.sigmoid(logits_of(old, row[None])[0, outputs.index(c)]).item()
            p = torch.sigmoid(now[c])
            losses.append(-target * p.log() - (1 - target) * (1 - p).log())
        total = torch.stack(losses).sum()
        terms.append(total / (len(losses) if config.reduction_over_classes == "mean" else 1))
    return torch.stack(terms).mean()


def check_steps(learner_class, world, assert_stepped, stream=STREAM, **fields):
    """Every step against the loss written out sigmoid by sigmoid, with columns by label."""
    config = ICaRL.Config(lr=0.3, replay=4, **fields)
    learner = recorded(learner_class)(world.network(), config, memory=15, classes=(2, 9, 0))
    old, old_classes, last = None, set(), None
    for step, (task, labels) in enumerate(stream):
        if step and task != last:
            old = copy.deepcopy(modules_of(learner))
            tasks = {own for _, own in world.log}
            old_classes = {c for own in tasks if own for c in own.classes}
            old_classes |= {label for label, _ in world.log}
        batch = world.batch(labels, task)
        info = learner.learn(batch)
        loss = expected_loss(world, learner, batch, old, old_classes, config)
        assert info.loss == pytest.approx(loss.item(), rel=1e-9)
        assert_stepped(modules_of(learner), learner.before, loss, lr=0.3)
        last = task


@pytest.mark.parametrize("over", ["sum", "mean"])
@pytest.mark.parametrize(
    ("train_mask", "replay_mask"), [("task", "task"), ("seen", "all"), ("all", "seen")]
)
def test_each_step_is_the_binary_loss_written_out(
    world, assert_stepped, train_mask, replay_mask, over
):
    fields = {"train_mask": train_mask, "replay_mask": replay_mask, "reduction_over_classes": over}
    check_steps(ICaRL, world, assert_stepped, **fields)


def test_tasks_may_come_again_or_not_be_told(world, assert_stepped):
    stream = [*STREAM[2:6], (WINDOWS[0], [0, 1]), (None, [5, 3, 0]), (None, [1]), *STREAM[6:10]]
    check_steps(ICaRL, world, assert_stepped, stream=stream)


@pytest.mark.parametrize("wrong", [DistilsReseen, OldAlways])
def test_each_wrong_target_is_told_apart(wrong, world, assert_stepped):
    with pytest.raises(AssertionError):
        check_steps(wrong, world, assert_stepped)


def check_current_labels_are_one_hot(learner_class, world):
    """Of the classes of this window each example has its label, however often it came before."""
    learner = learner_class(world.network(), memory=12)
    for task, labels in STREAM:
        learner.learn(world.batch(labels, task))
    batch = world.batch([2, 3, 4, 4], WINDOWS[2])
    x, y, _ = learner.begin_step(batch)
    targets = dict(zip(learner.classes, learner.targets(x, y).T.tolist(), strict=True))
    for label in WINDOWS[2].classes:
        assert targets[label] == [float(label == own) for own in batch.y.tolist()]
    for label in (0, 1):
        assert all(0 < value < 1 for value in targets[label])


def test_classes_that_come_again_are_taught_by_their_labels(world):
    check_current_labels_are_one_hot(ICaRL, world)
    with pytest.raises(AssertionError):
        check_current_labels_are_one_hot(DistilsReseen, world)


def test_old_classes_pull_nowhere_while_the_network_is_the_old_one(world):
    learner = ICaRL(world.network(), memory=12)
    for _ in range(5):
        learner.learn(world.batch([0, 1], Task(0, (0, 1))))
    before = learner.head.weight.detach().clone()
    learner.learn(world.batch([2, 3], Task(1, (2, 3))))
    torch.testing.assert_close(learner.head.weight[:2], before, rtol=0, atol=1e-14)
    learner.learn(world.batch([2, 3], Task(1, (2, 3))))  # now it has moved
    assert not torch.allclose(learner.head.weight[:2], before, rtol=0, atol=1e-9)


def test_within_one_task_it_is_a_plain_binary_loss(world):
    learner = recorded(ICaRL)(world.network(), memory=12)
    for labels in ([0, 1, 1], [2, 0], [1]):
        batch = world.batch(labels, WINDOWS[0])
        info = learner.learn(batch)
        x = torch.cat([batch.x, learner.replay]) if len(learner.replay) else batch.x
        y = torch.tensor([label for label, _ in world.who(x)])
        each = F.binary_cross_entropy_with_logits(
            logits_of(learner.before, x), F.one_hot(y, 3).double(), reduction="sum"
        )
        assert info.loss == pytest.approx(each.item() / len(x), rel=1e-10)
    assert learner.past.teacher is None


def herded(z, count):
    """Positions that herding picks from normalised features, by its definition."""
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    mean, picked = z.mean(axis=0), []
    while len(picked) < min(count, len(z)):
        rest = [i for i in range(len(z)) if i not in picked]
        sums = [(z[picked].sum(axis=0) + z[i]) / (len(picked) + 1) for i in rest]
        picked.append(rest[int(np.argmin([np.linalg.norm(mean - s) for s in sums]))])
    return picked


def check_memory(learner_class, world, **fields):
    """After each batch every class stores what herding picks from what it stored and what came."""
    config = ICaRL.Config(lr=0.1, **fields)
    classes = () if fields else range(5)
    learner = learner_class(world.network(), config, memory=13, classes=classes)
    model: dict[int, list[int]] = {}
    images = []
    for task, labels in STREAM:
        batch = world.batch(labels, task)
        images += list(batch.x)
        learner.learn(batch)
        for number, label in zip(world.numbers(batch.x), labels, strict=True):
            model.setdefault(label, []).append(number)  # dictionaries keep the order of arrival
        share, rest = divmod(13, len(model) if fields else 5)
        for rank, (label, numbers) in enumerate(model.items()):
            quota = share + (rank < rest)
            if len(numbers) > quota:
                z = learner.embed(torch.stack([images[n] for n in numbers])).numpy()
                model[label] = [numbers[i] for i in sorted(herded(z, quota))]
        stored: dict[int, list[int]] = {}
        for number in sorted(world.numbers(learner.memory.x)):
            stored.setdefault(world.log[number][0], []).append(number)
        assert stored == {label: sorted(numbers) for label, numbers in model.items()}
        assert [learner.classes[c] for c in learner.memory.y] == [
            label for label, _ in world.who(learner.memory.x)
        ]
    assert learner.memory.size > 8


def test_memory_holds_what_herding_picks(world):
    check_memory(ICaRL, world)


def test_classes_give_way_when_further_ones_arrive(world):
    check_memory(ICaRL, world, quota="growing")


@pytest.mark.parametrize("wrong", [Repicks, RawFeatures])
def test_each_wrong_herding_is_told_apart(wrong, world):
    with pytest.raises(AssertionError):
        check_memory(wrong, world)


def check_predictions(learner_class, world):
    """Nearest mean of normalised exemplars under the present network, asked after every step."""
    learner = learner_class(world.network(), memory=10, classes=range(6))
    for task, labels in STREAM:
        learner.learn(world.batch(labels, task))
        x = torch.randn(7, 5, generator=world.generator, dtype=torch.float64)
        phi = {}
        for row, (label, _) in zip(learner.memory.x, world.who(learner.memory.x), strict=True):
            z = learner.network(row[None])[0].detach()
            phi.setdefault(label, []).append(z / z.norm())
        mean = {label: sum(own) / len(own) for label, own in phi.items()}
        logits = dict(zip(learner.classes, learner.predict_logits(x).T, strict=True))
        z = learner.network(x).detach()
        for label, scores in logits.items():
            if label not in mean:
                assert scores.eq(-torch.inf).all()
                continue
            unit = mean[label] / mean[label].norm()
            distance = (z / z.norm(dim=1, keepdim=True) - unit).square().sum(dim=1)
            torch.testing.assert_close(scores, -distance)
        known = learner.means()[1]
        norms = learner.means()[0].norm(dim=1)
        torch.testing.assert_close(norms[known], torch.ones_like(norms[known]))


def test_prediction_is_the_nearest_mean_under_the_present_network(world):
    check_predictions(ICaRL, world)


@pytest.mark.parametrize("wrong", [Stale, RawFeatures])
def test_each_wrong_prediction_is_told_apart(wrong, world):
    with pytest.raises(AssertionError):
        check_predictions(wrong, world)


def taught(world, **fields):
    learner = ICaRL(world.network(), memory=10, **fields)
    for task, labels in STREAM:
        learner.learn(world.batch(labels, task))
    return learner


def test_a_task_limits_the_prediction_to_its_classes(world):
    learner = taught(world)
    x = world.batch([0, 1, 2, 3, 4]).x
    free = dict(zip(learner.classes, learner.predict_logits(x).T, strict=True))
    found = dict(zip(learner.classes, learner.predict_logits(x, WINDOWS[1]).T, strict=True))
    for label in learner.classes:
        if label in WINDOWS[1].classes:
            assert torch.equal(found[label], free[label])
        else:
            assert found[label].eq(-torch.inf).all()


def test_rescaled_features_predict_the_same(world):
    learner = taught(world)
    larger = ICaRL(world.network(), memory=10)
    larger.load_state_dict(learner.state_dict())
    larger.network.turn.mul_(37.0)
    x = world.batch([0, 1, 2, 3, 4]).x
    torch.testing.assert_close(larger.predict_logits(x), learner.predict_logits(x))


def test_memory_is_embedded_once_for_many_predictions(world):
    learner = taught(world)
    passed = []
    learner.network.register_forward_pre_hook(lambda _, inputs: passed.append(len(inputs[0])))
    for _ in range(3):
        learner.predict_logits_each(world.batch([0, 1]).x, [None, *WINDOWS])
    assert passed == [2, learner.memory.size, 2, 2] or passed == [learner.memory.size, 2, 2, 2]


def test_without_exemplars_every_class_is_as_likely(world):
    learner = ICaRL(world.network(), memory=0)
    for task, labels in STREAM:
        learner.learn(world.batch(labels, task))
    proba = learner.predict_proba(world.batch([0, 1]).x, WINDOWS[0])
    assert proba.tolist() == [[pytest.approx(1 / 3)] * 3 + [0, 0]] * 2


def test_without_tasks_there_is_no_old_network(world):
    learner = ICaRL(world.network(), memory=9)
    for _, labels in STREAM:
        learner.learn(world.batch(labels))
    assert learner.past.teacher is None
    assert learner.memory_usage().bytes["network copy"] == 0
    assert not [name for name in learner.state_dict().tensors if name.startswith("past.")]


def test_old_network_is_the_one_at_the_end_of_the_task(world):
    learner = ICaRL(world.network(), memory=9)
    for task, labels in STREAM:
        end = copy.deepcopy(modules_of(learner))
        rows = len(learner.class_table)
        boundary = learner.class_table.current not in (None, task.id + 1)
        learner.learn(world.batch(labels, task))
        if boundary:
            old = learner.past.teacher
            x = world.batch([0]).x
            torch.testing.assert_close(old.logits(x), logits_of(end, x).detach())
            assert old.logits(x).shape == (1, rows)
            assert not any(p.requires_grad for p in old.network.parameters())
            bytes_held = sum(p.numel() * 8 for m in end.values() for p in m.parameters())
            buffers = sum(b.numel() * 8 for b in end["network"].buffers())
            assert learner.memory_usage().bytes["network copy"] == bytes_held + buffers
    assert len(old.head.bias) == 4


def test_a_state_without_a_copy_takes_it_away_and_one_with_it_brings_it(world):
    fresh, old = ICaRL(world.network(), memory=10), taught(world)
    empty, full = fresh.state_dict(), old.state_dict()
    fresh.load_state_dict(full)
    x = world.batch([0, 1]).x
    assert torch.equal(fresh.past.teacher.logits(x), old.past.teacher.logits(x))
    assert fresh.past.columns == old.past.columns
    assert fresh.past.teacher.network is not fresh.network
    old.load_state_dict(empty)
    assert old.past.teacher is None
    assert old.past.columns == []
    assert old.memory_usage().bytes["network copy"] == 0


def test_states_whose_copy_does_not_fit_are_refused(world):
    learner = taught(world)
    whole = learner.state_dict()

    def with_past(**meta):
        parts = {**whole.meta["parts"], "past": {**whole.meta["parts"]["past"], **meta}}
        return {**whole.meta, "parts": parts}

    without = {k: v for k, v in whole.tensors.items() if not k.startswith("past.")}
    cut = {k: v[:-1] if k.startswith("past.head") else v for k, v in whole.tensors.items()}
    grown = {
        k: torch.cat([v, v, v]) if k.startswith("past.head") else v
        for k, v in whole.tensors.items()
    }
    rows = whole.meta["parts"]["past"]["rows"]
    for tensors, meta, why in (
        (without, whole.meta, "copied network differs"),
        (whole.tensors, with_past(taken=False), "says that it has none"),
        (cut, whole.meta, "copied head has"),
        (cut, with_past(rows=rows - 1), "rows for the columns"),
        (grown, with_past(rows=3 * rows), "rows for 5 classes"),
        (whole.tensors, with_past(columns=[-1]), "rows for the columns"),
    ):
        with pytest.raises(StateMismatch, match=why):
            learner.load_state_dict(State(tensors, meta))
    other = ICaRL(MLP(5, (3,)).double(), memory=10)
    with pytest.raises(StateMismatch, match="network differs"):
        other.load_state_dict(whole)


def test_fixed_embeddings_are_herded_and_told_apart():
    learner = ICaRL(Flatten(2), memory=4)
    x = torch.tensor([[1.0, 0.1], [2.0, 0.3], [0.1, 1.0], [0.2, 3.0]])
    for task in (Task(0, (0, 1)), Task(1, (0, 1))):
        learner.learn(Batch(x, torch.tensor([0, 0, 1, 1]), task))
    assert learner.predict(x).tolist() == [0, 0, 1, 1]
