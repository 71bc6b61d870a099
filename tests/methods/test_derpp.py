"""DER++: stored logits stay what they were, and each step is the three terms written out."""

import copy
import math

import pytest
import torch

from deepccg.core import State, StateMismatch, Task
from deepccg.methods import ER, SGD
from deepccg.methods.derpp import DERPP

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (2, 3, 4)))
LABELS = ([0, 1, 2, 1], [1, 2, 3, 3, 2], [2, 4, 3])


class StoresMasked(DERPP):
    """Wrong: what is stored are the logits under the task's mask."""

    def store(self, x, y, task_idx, logits):
        mask = self.class_table.mask("task", task_idx)
        super().store(x, y, task_idx, logits.masked_fill(~mask, -math.inf))


class StoresAfterTheStep(DERPP):
    """Wrong: the logits are computed again, with the parameters after the step."""

    def store(self, x, y, task_idx, logits):  # noqa: ARG002
        super().store(x, y, task_idx, self.scores(x))


class RefreshesAtTaskEnd(DERPP):
    """Wrong: all stored logits are computed again when a task is over."""

    def finish_task(self):
        memory, slots = self.memory, torch.arange(self.memory.size)
        fresh = {"logits": self.scores(memory.x), "outputs": memory["outputs"].clone()}
        memory.write(slots, memory.x.clone(), memory.y.clone(), memory.task.clone(), **fresh)


class MatchesLaterOutputs(DERPP):
    """Wrong: outputs that did not exist at insertion are pulled to zero."""

    def matched(self, slots):
        return torch.ones(len(slots), len(self.class_table), dtype=torch.bool)


def modules_of(learner):
    return {"network": learner.network, "head": learner.head}


def parameters_of(learner):
    return [p.detach().clone() for m in learner.trainable_modules() for p in m.parameters()]


def recorded(learner_class):
    """Keeps what a step began with: the modules (grown already) and the two replays."""

    class Recorded(learner_class):
        def draw_replays(self):
            self.before = copy.deepcopy(modules_of(self))
            draws = super().draw_replays()
            self.replay, self.distilled = (self.memory.x[slots] for slots in draws)
            return draws

    return Recorded


def raw_logits(learner, row):
    """Of one example, by label, at the parameters the step began with."""
    logits = learner.before["head"](learner.before["network"](row[None]))[0]
    return dict(zip(learner.classes, logits, strict=True))


def stream_of(world, rounds=2):
    """Overlapping tasks, then none; classes are not declared, label 7 comes without a task."""
    tasks, labels = (*WINDOWS, None) * rounds, (*LABELS, [0, 4, 7]) * rounds
    for task, own in zip(tasks, labels, strict=True):
        yield world.batch(own, task)


def check_stored_logits(learner_class, world):
    """What is stored equals the logits of the step that stored it, then and ever after."""
    learner = recorded(learner_class)(world.network(), memory=8)
    at_insertion = {}
    for batch in stream_of(world):
        learner.learn(batch)
        new = zip(world.numbers(batch.x), batch.x, strict=True)
        at_insertion |= {number: list(raw_logits(learner, row).values()) for number, row in new}
        for number, logits, outputs in zip(
            world.numbers(learner.memory.x),
            learner.memory["logits"],
            learner.memory["outputs"].tolist(),
            strict=True,
        ):
            expected = torch.stack(at_insertion[number]).detach()
            assert outputs == len(expected)
            torch.testing.assert_close(logits[:outputs], expected, rtol=1e-10, atol=1e-12)
            assert not logits[outputs:].any()
    assert learner.memory.size == 8
    assert len(set(learner.memory["outputs"].tolist())) > 1


def check_step(learner_class, world, assert_stepped, **fields):
    """Against the loss written out example by example, logits and classes by label."""
    config = learner_class.Config(lr=0.05, replay=4, alpha=0.7, beta=0.3, **fields)
    learner = recorded(learner_class)(world.network(), config, memory=9)
    stored = {}  # logits by example number and label, as the step computed them
    for batch in stream_of(world):
        learner.learn(batch)
        loss = mean_cross_entropy(learner, world, batch.x)
        if len(learner.replay):
            loss = loss + 0.3 * mean_cross_entropy(learner, world, learner.replay)
            loss = loss + 0.7 * mean_square(learner, world, stored, config.distil)
        assert_stepped(modules_of(learner), learner.before, loss, lr=0.05)
        for number, row in zip(world.numbers(batch.x), batch.x, strict=True):
            logits = raw_logits(learner, row)
            stored[number] = {label: value.detach() for label, value in logits.items()}


def mean_cross_entropy(learner, world, x):
    terms = []
    for row, (label, task) in zip(x, world.who(x), strict=True):
        score = raw_logits(learner, row)
        allowed = world.allowed("task", task, learner.classes)
        terms.append(torch.stack([score[c] for c in allowed]).logsumexp(0) - score[label])
    return torch.stack(terms).mean()


def mean_square(learner, world, stored, distil):
    x, terms = learner.distilled, []
    for row, number, (_, task) in zip(x, world.numbers(x), world.who(x), strict=True):
        score, target = raw_logits(learner, row), stored[number]
        labels = set(target)
        if distil == "task":
            labels &= world.allowed("task", task, learner.classes)
        terms.append(torch.stack([(score[c] - target[c]) ** 2 for c in labels]).mean())
    return torch.stack(terms).mean()


def test_stored_logits_are_those_of_insertion_and_never_change(make_world):
    check_stored_logits(DERPP, make_world())
    for wrong in (StoresMasked, StoresAfterTheStep, RefreshesAtTaskEnd):
        with pytest.raises(AssertionError):
            check_stored_logits(wrong, make_world())


@pytest.mark.parametrize("distil", ["all", "task"])
@pytest.mark.parametrize("shared_draw", [False, True])
def test_each_step_is_one_sgd_step_on_the_three_terms(
    make_world, assert_stepped, distil, shared_draw
):
    fields = {"distil": distil, "shared_draw": shared_draw}
    check_step(DERPP, make_world(), assert_stepped, **fields)
    for wrong in (StoresAfterTheStep, MatchesLaterOutputs):
        with pytest.raises(AssertionError):
            check_step(wrong, make_world(), assert_stepped, **fields)


@pytest.mark.parametrize(("shared_draw", "images"), [(False, 3 + 4 + 4), (True, 3 + 4)])
def test_two_independent_draws_in_one_forward(world, shared_draw, images):
    network = world.network()
    passed = []
    network.register_forward_pre_hook(lambda _, inputs: passed.append(len(inputs[0])))
    config = DERPP.Config(replay=4, shared_draw=shared_draw)
    learner = recorded(DERPP)(network, config, memory=30)
    same = []
    for step in range(12):
        passed.clear()
        info = learner.learn(world.batch([0, 1, 2]))
        if step < 2:
            continue  # fewer than four stored
        replay, distilled = world.numbers(learner.replay), world.numbers(learner.distilled)
        assert len(set(replay)) == len(set(distilled)) == 4
        assert info.replayed == len({*replay, *distilled})
        same.append(replay == distilled)
        assert passed == [images]
    assert all(same) if shared_draw else not any(same)


def test_without_an_update_there_is_no_distance(world):
    """Whatever its weight, as long as the parameters are those of the insertion."""
    config = DERPP.Config(lr=1e-300, alpha=1e9, beta=0.0)
    derpp = DERPP(world.network(), config, memory=20)
    sgd = SGD(world.network(), SGD.Config(lr=1e-300))
    for batch in stream_of(world):
        loss = derpp.learn(batch).loss
        assert loss == pytest.approx(sgd.learn(batch).loss, rel=1e-9)


@pytest.mark.parametrize(
    ("fields", "memory"),
    [({"alpha": 0.0, "beta": 0.0}, 9), ({}, 0), ({"replay": 0}, 9)],
    ids=["no-weights", "no-memory", "no-replay"],
)
def test_with_nothing_to_replay_it_is_sgd_bit_for_bit(world, fields, memory):
    derpp = DERPP(world.network(), DERPP.Config(**fields), memory=memory, seed=3)
    sgd = SGD(world.network(), seed=3)
    for batch in stream_of(world, rounds=8):
        assert derpp.learn(batch) == sgd.learn(batch)
    assert all(map(torch.equal, parameters_of(derpp), parameters_of(sgd)))


def test_without_the_distance_it_is_er_with_added_means_bit_for_bit(world):
    derpp = DERPP(world.network(), DERPP.Config(alpha=0.0, beta=1.0), memory=9, seed=3)
    er = ER(world.network(), ER.Config(reduction="means"), memory=9, seed=3)
    for batch in stream_of(world, rounds=8):
        assert derpp.learn(batch) == er.learn(batch)
    assert all(map(torch.equal, parameters_of(derpp), parameters_of(er)))


def test_logits_are_counted_among_what_is_held(world):
    learner = DERPP(world.network(), memory=8, classes=range(5))
    for batch in stream_of(world):
        learner.learn(batch)
    classes = len(learner.classes)
    assert classes == 6
    assert learner.memory_usage().bytes["logits"] == 8 * classes * 8  # examples, outputs, float64


@pytest.mark.parametrize("name", ["memory.logits", "memory.outputs"])
def test_a_state_whose_logits_do_not_fit_its_classes_is_refused(world, name):
    learner = DERPP(world.network(), memory=8)
    for batch in stream_of(world):
        learner.learn(batch)
    state = learner.state_dict()
    tensor = state.tensors[name]
    cut = tensor[:, :-1] if tensor.ndim == 2 else tensor[:, None]
    damaged = State({**state.tensors, name: cut}, state.meta)
    with pytest.raises(StateMismatch):
        learner.load_state_dict(damaged)
