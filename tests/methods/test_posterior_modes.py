"""What a step embeds of memory: all it needs, that of few tasks, or a sample of each class."""

import copy
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from deepccg.core import State, StateMismatch, Task
from deepccg.gaussian import class_posterior
from deepccg.learners.context import AGE, EMBEDDING, draw_refresh
from deepccg.methods import DeepCCG, DeepCCGReservoir

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (5, 6)), None)
LABELS = ([0, 1, 2, 1, 0], [1, 2, 3, 3, 2, 1], [5, 6, 5, 6], [0, 3, 6, 5])
PAIRS = tuple(Task(n, (2 * n, 2 * n + 1)) for n in range(4))


def learner_on(world, learner_class=DeepCCG, memory=30, **fields):
    config = {"lr": 0.05, "replay": 4, "embedding_scale": 2.0, "replay_mask": "task", **fields}
    return learner_class(world.network(), learner_class.Config(**config), memory=memory)


def passes_of(learner) -> list[int]:
    """How many examples go through the network at each call, from now on."""
    passed: list[int] = []
    learner.network.register_forward_pre_hook(lambda _, args: passed.append(len(args[0])))
    return passed


def stream(world, rounds=3):
    for task, labels in zip(WINDOWS * rounds, LABELS * rounds, strict=True):
        yield world.batch(labels, task)


def pairs(world, rounds=4):
    """Disjoint tasks of two classes, one after the other, until memory holds all of them."""
    for _ in range(rounds):
        for task in PAIRS:
            yield world.batch([*task.classes] * 3, task)


def same_learning(one, other) -> None:
    """Equal networks and memories, to rounding."""
    for ours, theirs in zip(one.network.parameters(), other.network.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)
    for name in ("x", "y", "task"):
        assert torch.equal(one.memory[name], other.memory[name])


class Everything(DeepCCG):
    """Embeds all of memory outside R, needed or not."""

    def context_slots(self, mask, replay, reselected):
        del mask
        every_class = torch.ones(1, len(self.class_table)).bool()
        return super().context_slots(every_class, replay, reselected)


VARIANTS = [
    {},
    {"mean_gradient": True},
    {"normalise": True},
    {"variance": "per-class", "reduction": "sum"},
    {"embedding_scale": "learned"},
    {"absent": "batch"},
    {"replay_draw": "literal"},
    {"quota": "growing", "selector": "swap"},
    {"selection_features": "after"},
]


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_embedding_what_is_needed_is_embedding_everything(world, fields):
    needed, everything = learner_on(world, **fields), learner_on(world, Everything, **fields)
    fewer, more = passes_of(needed), passes_of(everything)
    for batch in pairs(world):
        info, reference = needed.learn(batch), everything.learn(batch)
        assert info.loss == pytest.approx(reference.loss, rel=1e-9, abs=1e-12)
    same_learning(needed, everything)
    assert sum(fewer) < sum(more)


class Watched(DeepCCG):
    """Keeps R of the last step."""

    def sample_replay(self):
        replay = super().sample_replay()
        self.drawn = replay.slots
        return replay


@pytest.mark.parametrize("posterior", ["exact", "grouped"])
@pytest.mark.parametrize("replay_mask", ["task", "seen"])
def test_no_image_is_embedded_that_no_mask_asks_for(world, posterior, replay_mask):
    """Counted by hand: batch, R, and what is stored of every class that some mask allows."""
    learner = learner_on(
        world, Watched, memory=40, posterior=posterior, replay_tasks=1, replay_mask=replay_mask
    )
    passed = passes_of(learner)
    for batch in pairs(world, rounds=3):
        held = world.who(learner.memory.x) if learner.memory.size else []
        passed.clear()
        info = learner.learn(batch)
        replayed = [held[slot] for slot in learner.drawn.tolist()]
        wanted = set(batch.task.classes)
        for _, task in replayed:
            wanted |= set(task.classes) if replay_mask == "task" else set(learner.classes)
        assert info.replayed == len(replayed)
        stored = sum(label in wanted for label, _ in held)
        assert sum(passed) == len(batch) + stored


def test_grouped_replay_asks_for_fewer_classes(world):
    cost = {}
    for posterior, mode in (("exact", {}), ("grouped", {"replay_tasks": 1})):
        learner = learner_on(world, memory=40, posterior=posterior, **mode)
        passed = passes_of(learner)
        batches = list(pairs(world, rounds=6))
        for batch in batches:
            passed.clear()
            learner.learn(batch)
            cost.setdefault(posterior, []).append(sum(passed))
    assert sum(cost["grouped"][12:]) < 0.8 * sum(cost["exact"][12:])


def test_grouped_replay_is_the_uniform_one_without_tasks(world):
    """One open task: as many replayed, and all of memory needed."""
    learner = learner_on(world, posterior="grouped", memory=12)
    for _ in range(6):
        info = learner.learn(world.batch([0, 1, 2, 3]))
    assert info.replayed == 4


def test_grouped_and_balanced_draws_exclude_each_other():
    with pytest.raises(ValidationError, match="choose one of them"):
        DeepCCG.Config(posterior="grouped", replay_sampling="balanced")


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_lazy_is_exact_when_it_embeds_all_of_each_class(world, fields):
    """Draw for draw: what to embed again is drawn by a separate generator."""
    fields = {"replay_tasks": 2, **fields}
    exact = learner_on(world, **fields)
    for limits in ({"refresh": 30}, {"refresh": 1, "max_age": 0}):
        lazy = learner_on(world, posterior="lazy", **limits, **fields)
        twin = copy.deepcopy(exact)
        for batch in stream(world):
            assert lazy.learn(batch).loss == pytest.approx(twin.learn(batch).loss, rel=1e-9)
        same_learning(lazy, twin)


def test_lazy_embeds_a_sample_of_each_class(world):
    """At most ``refresh`` of each class needed, those that are too old, and the batch's classes."""
    learner = learner_on(world, Watched, memory=40, posterior="lazy", refresh=2, max_age=3)
    passed = passes_of(learner)
    total = exact = 0
    for batch in pairs(world, rounds=6):
        held, age = [], torch.zeros(0)
        if learner.memory.size:
            held, age = world.who(learner.memory.x), learner.memory[AGE].clone()
        passed.clear()
        learner.learn(batch)
        outside = set(range(len(held))) - set(learner.drawn.tolist())
        wanted = set(batch.task.classes)
        for slot in learner.drawn.tolist():
            wanted |= set(held[slot][1].classes)
        expected = len(batch) + len(learner.drawn)
        for label in wanted:
            own = [slot for slot in outside if held[slot][0] == label]
            old = sum(int(age[slot]) >= 3 for slot in own)
            old = len(own) if label in batch.y.tolist() else old
            expected += old + min(2, len(own) - old)
            exact += len(own)
        assert sum(passed) == expected
        total += expected - len(batch) - len(learner.drawn)
        if learner.memory.size:
            assert int(learner.memory[AGE].max()) <= 3
    assert total < exact


def test_a_reservoir_with_a_lazy_posterior_is_exact_when_all_is_embedded(world):
    exact = learner_on(world, DeepCCGReservoir, memory=12, replay_tasks=2)
    for limits in ({"refresh": 30}, {"refresh": 1, "max_age": 0}):
        lazy = learner_on(
            world, DeepCCGReservoir, memory=12, posterior="lazy", replay_tasks=2, **limits
        )
        twin = copy.deepcopy(exact)
        for batch in stream(world):
            assert lazy.learn(batch).loss == pytest.approx(twin.learn(batch).loss, rel=1e-9)
        same_learning(lazy, twin)


def test_a_reservoir_embeds_no_class_entirely(world):
    """Nothing is selected by embeddings: a sample of each class will do, the batch's included."""
    task = Task(0, (0, 1))
    learner = learner_on(
        world, DeepCCGReservoir, memory=40, posterior="lazy", refresh=3, max_age=1000
    )
    for _ in range(4):
        learner.learn(world.batch([0, 1] * 5, task))
    assert learner.memory.size == 40
    passed = passes_of(learner)
    learner.learn(world.batch([0, 1] * 5, task))
    assert sum(passed) == 10 + 4 + 2 * 3  # batch, replay, three of each class


class Estimating:
    """Keeps what the last step was conditioned on."""

    def embed_step(self, x, replay, slots, reselected):
        self.before = copy.deepcopy(self.network)
        z, context = super().embed_step(x, replay, slots, reselected)
        self.context = context
        return z, context


class Estimated(Estimating, DeepCCG):
    pass


class EstimatedReservoir(Estimating, DeepCCGReservoir):
    pass


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=10),
    st.integers(1, 3),
    st.integers(0, 4),
    st.sampled_from([0, 1, 9, 20]),
    st.sampled_from(["fixed", "growing", None]),
)
def test_caches_stay_with_their_examples(make_world, windows, refresh, max_age, memory, quota):
    """An embedding computed this step is the example's own, wherever it was moved since."""
    world = make_world()
    limits = {"posterior": "lazy", "refresh": refresh, "max_age": max_age}
    if quota is None:
        learner = learner_on(world, EstimatedReservoir, memory=memory, **limits)
    else:
        learner = learner_on(world, Estimated, memory=memory, quota=quota, **limits)
    for window in windows:
        learner.learn(world.batch(LABELS[window], WINDOWS[window]))
        if learner.memory.size:
            now = learner.memory[AGE] == 0
            with torch.no_grad():
                z = learner.before(learner.memory.x)
            used = torch.isin(learner.memory[EMBEDDING], learner.context.z.detach()).all(dim=1)
            fresh = (learner.memory[EMBEDDING] - z).abs().amax(dim=1) < 1e-12
            # Whatever was embedded in this step is right; of other classes nothing is said.
            assert bool(fresh[now & used].all())
            assert int(learner.memory[AGE].max()) <= max_age


def test_estimated_means_are_right_on_average(world):
    """Over the draws of what to embed again, from one state with stale caches."""
    learner = learner_on(world, Estimated, posterior="lazy", refresh=2, max_age=1000, lr=0.5)
    for batch in pairs(world, rounds=5):
        learner.learn(batch)
    batch = world.batch([0, 1, 0], PAIRS[0])
    x, y, task_idx = learner.begin_step(batch)
    replay = learner.sample_replay().slots
    rest = learner.context_slots(learner.masks(task_idx, replay), replay, y)
    means, errors = [], []
    for seed in range(600):
        learner.cache.generator.manual_seed(seed)
        _, given = learner.embed_step(x, replay, rest, y)
        means.append(class_posterior(given.z, learner.memory.y[rest], 8).mean)
        errors.append(given.error)
    with torch.no_grad():
        z = learner.network(learner.memory.x[rest])
    truth = class_posterior(z, learner.memory.y[rest], 8).mean
    drawn = torch.stack(means)
    error = (drawn - truth).square().sum(dim=2).mean(dim=0)
    assert bool((error > 0).any())  # the caches are stale
    miss = (drawn.mean(dim=0) - truth).abs()
    assert bool((miss <= 5 * drawn.std(dim=0) / 600**0.5 + 1e-12).all())
    assert torch.stack(errors).mean(dim=0).sum().item() == pytest.approx(
        error.sum().item(),
        rel=0.35,  # the spread is pooled over classes
    )


def test_replayed_examples_do_not_explain_themselves(world):
    """What R looks like now does not change what it is scored by; its caches are renewed."""
    learner = learner_on(world, Estimated, posterior="lazy", refresh=2)
    for batch in pairs(world):
        learner.learn(batch)
    x, y, task_idx = learner.begin_step(world.batch([0, 1], PAIRS[0]))
    replay = learner.sample_replay().slots
    rest = learner.context_slots(learner.masks(task_idx, replay), replay, y)
    given = []
    for offset in (0.0, 3.0):
        learner.cache.generator.manual_seed(0)
        learner.memory.x[replay] += offset
        given.append(learner.embed_step(x, replay, rest, y)[1])
    assert torch.equal(given[0].z, given[1].z)


def test_refresh_draws_each_example_equally_often():
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([0, 0, 0, 0, 3, 3, 3, 1])
    due = torch.tensor([0, 0, 1, 0, 0, 0, 0, 0]).bool()
    total = torch.zeros(8)
    for _ in range(3000):
        known, sampled = draw_refresh(y, due, 2, generator)
        assert torch.bincount(y[sampled], minlength=4).tolist() == [2, 1, 0, 2]
        assert known.tolist()[2]
        assert not sampled[2]
        total += sampled
    expected = torch.tensor([2, 2, 0, 2, 2, 2, 2, 3]) / 3
    assert (total / 3000 - expected).abs().max() < 5 * (0.25 / 3000) ** 0.5


def test_predictions_are_exact_in_every_mode(world):
    lazy = learner_on(world, posterior="lazy", refresh=1)
    for batch in stream(world):
        lazy.learn(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = learner_on(world)
        exact.load_state_dict(lazy.state_dict())
    x = world.batch([0, 1, 2, 3]).x
    for task in WINDOWS:
        assert torch.equal(lazy.predict_logits(x, task), exact.predict_logits(x, task))


def test_caches_are_named_among_the_holdings(world):
    learner = learner_on(world, posterior="lazy")
    assert "cached embeddings" not in learner.memory_usage().bytes
    for batch in stream(world):
        learner.learn(batch)
    size, dim = learner.memory.size, learner.dim
    assert learner.memory_usage().bytes["cached embeddings"] == size * (8 * dim + 8)
    assert set(learner.memory_usage().bytes) == {"examples", "cached embeddings"}


def test_a_state_without_caches_goes_on_exactly_until_they_are_filled(world):
    exact = learner_on(world, replay_tasks=2)
    lazy = learner_on(world, posterior="lazy", refresh=1)
    for batch in stream(world):
        exact.learn(batch)
    with pytest.warns(UserWarning, match="other method fields"):
        lazy.load_state_dict(exact.state_dict())
    batch = world.batch(LABELS[3])  # the open task: every class is needed, and embedded
    assert lazy.learn(batch).loss == pytest.approx(exact.learn(batch).loss, rel=1e-12)
    assert int(lazy.memory[AGE].max()) == 0


def test_a_state_with_caches_goes_on_without_them(world):
    exact = learner_on(world, replay_tasks=2)
    lazy = learner_on(world, posterior="lazy", refresh=30)
    for batch in stream(world):
        lazy.learn(batch)
    with pytest.warns(UserWarning, match="other method fields"):
        exact.load_state_dict(lazy.state_dict())
    assert exact.memory.extra_bytes == {}
    batch = world.batch(LABELS[0], WINDOWS[0])
    assert exact.learn(batch).loss == pytest.approx(lazy.learn(batch).loss, rel=1e-12)


@pytest.mark.parametrize(
    "damage",
    [
        lambda z: z[:, :-1],
        lambda z: z.float(),
        lambda z: z[:-1],
        lambda z: torch.full_like(z, torch.nan),
        lambda z: z[:, 0],
    ],
    ids=["narrow", "float", "short", "nan", "flat"],
)
def test_malformed_caches_are_refused(world, damage):
    learner = learner_on(world, posterior="lazy")
    for batch in stream(world):
        learner.learn(batch)
    state = learner.state_dict()
    name = f"memory.{EMBEDDING}"
    bad = State({**state.tensors, name: damage(state.tensors[name]).clone()}, state.meta)
    with pytest.raises(StateMismatch):
        learner.load_state_dict(bad)
    for other in (AGE, EMBEDDING):
        rest = {k: v for k, v in state.tensors.items() if k != f"memory.{other}"}
        with pytest.raises(StateMismatch):
            learner.load_state_dict(State(rest, state.meta))


def test_fields_that_an_older_state_lacks_had_their_defaults(world):
    learner = learner_on(world)
    learner.learn(world.batch(LABELS[0]))
    state = learner.state_dict()
    older = {key: value for key, value in state.meta["config"].items() if key != "posterior"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.load_state_dict(State(state.tensors, {**state.meta, "config": older}))
    lazy = learner_on(world, posterior="lazy")
    with pytest.warns(UserWarning, match="other method fields"):
        lazy.load_state_dict(State(state.tensors, {**state.meta, "config": older}))


@pytest.mark.parametrize("posterior", ["grouped", "lazy"])
@pytest.mark.parametrize("fields", [{}, *VARIANTS[1:4], {"memory": 0}, {"memory": 3}], ids=str)
def test_odd_streams_are_learned(world, posterior, fields):
    """Batches of one, no task, growing classes, hardly any memory."""
    learner = learner_on(world, posterior=posterior, **fields)
    for step in range(12):
        task = None if step % 3 else WINDOWS[step % 4]
        label = step % 5 if task is None else task.classes[0]
        info = learner.learn(world.batch([label], task))
        assert info.loss >= 0
    assert learner.memory.size <= fields.get("memory", 30)
