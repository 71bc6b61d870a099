"""What a step embeds of memory: all it needs, or a sample of each class."""

import copy
import warnings
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError, State, StateMismatch, Task, validated
from deepccg.gaussian import class_posterior
from deepccg.learners.context import Context, sample_replay
from deepccg.memory import EMBEDDING
from deepccg.methods import DeepCCG, DeepCCGReservoir
from deepccg.methods.deepccg import REPLAYED_TASKS

WINDOWS = (Task(0, (0, 1, 2)), Task(1, (1, 2, 3)), Task(2, (5, 6)), None)
LABELS = ([0, 1, 2, 1, 0], [1, 2, 3, 3, 2, 1], [5, 6, 5, 6], [0, 3, 6, 5])
SAMPLED = {"posterior": "sampled", "sample": 2}
LEFT_OUT = {"posterior": "leave-one-out", "sample": 2}
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

    def sample_replay(self, *step):
        replay = super().sample_replay(*step)
        self.drawn = replay.slots
        return replay


class Estimating:
    """Keeps what the last step was conditioned on."""

    def embed_step(self, x, replay, slots):
        self.before = copy.deepcopy(self.network)
        self.x_stored, self.y_stored = self.memory.x[slots], self.memory.y[slots]
        self.x_scored = torch.cat([x, self.memory.x[replay]])
        z, self.context = super().embed_step(x, replay, slots)
        return z, self.context

    def brute_force(self):
        """What the context is an estimate of."""
        with torch.no_grad():
            return self.before(self.x_stored)


class Estimated(Estimating, DeepCCG):
    pass


class EstimatedReservoir(Estimating, DeepCCGReservoir):
    pass


class FewTasks:
    """Replays from one task, as ``sampled`` has them."""

    def sample_replay(self, *_):
        return sample_replay(self.memory, self.config, self.generator, REPLAYED_TASKS)


class ExactOfFewTasks(FewTasks, DeepCCG):
    pass


class ReservoirOfFewTasks(FewTasks, DeepCCGReservoir):
    pass


@pytest.mark.parametrize("replay_mask", ["task", "seen"])
def test_no_image_is_embedded_that_no_mask_asks_for(world, replay_mask):
    """Counted by hand: batch, R, and what is stored of every class that some mask allows."""
    learner = learner_on(world, Watched, memory=40, replay_mask=replay_mask)
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


@pytest.mark.parametrize("fields", VARIANTS, ids=str)
def test_sampled_is_exact_when_it_embeds_all_of_each_class(world, fields):
    """Draw for draw: what to embed is drawn by a separate generator."""
    exact = learner_on(world, ExactOfFewTasks, **fields)
    sampled = learner_on(world, posterior="sampled", sample=30, **fields)
    for batch in stream(world):
        assert sampled.learn(batch).loss == pytest.approx(exact.learn(batch).loss, rel=1e-9)
    same_learning(sampled, exact)


@pytest.mark.parametrize("sample", [2, 3])
@pytest.mark.parametrize("through", [False, True])
def test_a_step_embeds_so_many_of_each_class_compared(world, sample, through):
    """The batch's classes included; all in one pass where the means have a gradient."""
    fields = {"posterior": "sampled", "sample": sample, "mean_gradient": through}
    learner = learner_on(world, Watched, memory=40, **fields)
    passed = passes_of(learner)
    for batch in pairs(world, rounds=6):
        held = world.who(learner.memory.x) if learner.memory.size else []
        passed.clear()
        learner.learn(batch)
        drawn = learner.drawn.tolist()
        outside = [held[slot] for slot in range(len(held)) if slot not in drawn]
        wanted = set(batch.task.classes).union(*(held[slot][1].classes for slot in drawn))
        stored = Counter(label for label, _ in outside if label in wanted)
        context = sum(min(sample, number) for number in stored.values())
        with_gradient = len(batch) + len(drawn)
        if through or not context:
            assert passed == [with_gradient + context]
        else:
            assert sorted(passed) == sorted([with_gradient, context])


def test_a_reservoir_with_a_sampled_posterior_is_exact_when_all_is_embedded(world):
    exact = learner_on(world, ReservoirOfFewTasks, memory=12)
    sampled = learner_on(world, DeepCCGReservoir, memory=12, posterior="sampled", sample=30)
    for batch in stream(world):
        assert sampled.learn(batch).loss == pytest.approx(exact.learn(batch).loss, rel=1e-9)
    same_learning(sampled, exact)


@pytest.mark.parametrize("mode", [SAMPLED, LEFT_OUT], ids=str)
@pytest.mark.parametrize("learner_class", [Estimated, EstimatedReservoir])
def test_the_mean_is_that_of_all_stored_where_nothing_drifted(world, learner_class, mode):
    """Fresh caches: the estimated means are those of every stored example, embedded anew."""
    learner = learner_on(world, learner_class, memory=40, **mode)
    for batch in pairs(world, rounds=4):
        learner.learn(batch)
    with torch.no_grad():
        learner.memory[EMBEDDING][:] = learner.network(learner.memory.x)
    learner.learn(world.batch([0, 1, 0], PAIRS[0]))
    found, brute = (
        class_posterior(z.detach(), learner.y_stored, 8).mean
        for z in (learner.context.z, learner.brute_force())
    )
    torch.testing.assert_close(found, brute)
    assert float(learner.context.error.max()) < 1e-20


def test_the_gradient_of_a_step_is_on_average_that_of_all_stored(world):
    """Through the means, from fresh caches, over the draws of what is embedded.

    A learner that counts each sampled example with its own share alone is told apart.
    """
    fields = {"mean_gradient": True, "replay": 0, "lr": 1.0}
    start = learner_on(world, **SAMPLED, memory=40, **fields)
    for batch in pairs(world, rounds=2):
        start.learn(batch)
    with torch.no_grad():
        start.memory[EMBEDDING][:] = start.network(start.memory.x)
    batch = world.batch([0, 1, 0], PAIRS[0])

    def moved(learner_class, seed=0, **mode):
        learner = learner_on(world, learner_class, memory=40, **mode, **fields)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state = start.state_dict()
            own = {**state.meta, "method": learner_class.__name__}
            learner.load_state_dict(State(state.tensors, own))
        if learner.cache is not None:
            learner.cache.generator.manual_seed(seed)
        learner.learn(batch)
        pairs_of = zip(learner.network.parameters(), start.network.parameters(), strict=True)
        return torch.cat([(new - old).detach().flatten() for new, old in pairs_of])

    exact = moved(DeepCCG)
    draws = torch.stack([moved(DeepCCG, seed, **SAMPLED) for seed in range(400)])
    wrong = torch.stack([moved(OwnShare, seed, **SAMPLED) for seed in range(40)])
    margin = 5 * draws.std(dim=0) / len(draws) ** 0.5 + 1e-12
    assert bool(((draws.mean(dim=0) - exact).abs() <= margin).all())
    assert not bool(((wrong.mean(dim=0) - exact).abs() <= margin).all())


class OwnShare(DeepCCG):
    """Wrong: what is estimated has no gradient, so that of the mean is too short."""

    def build_state(self, seed):
        super().build_state(seed)
        draw = self.cache.draw

        def kept(y):
            self.sampled = draw(y)
            return self.sampled

        self.cache.draw = kept

    def embed_step(self, x, replay, slots):
        z, context = super().embed_step(x, replay, slots)
        own = context.z.where(self.sampled[:, None], context.z.detach())
        return z, context._replace(z=own)


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=10),
    st.integers(2, 3),
    st.sampled_from([0, 1, 9, 20]),
    st.sampled_from(["fixed", "growing", None]),
    st.sampled_from(["sampled", "leave-one-out"]),
)
def test_caches_stay_with_their_examples(make_world, windows, sample, memory, quota, posterior):
    """After a step each cache is what the step knew of that example, wherever it was moved."""
    world = make_world()
    fields = {"posterior": posterior, "sample": sample, "quota": quota}
    if quota is None:
        del fields["quota"]
    kind = EstimatedReservoir if quota is None else Estimated
    learner = learner_on(world, kind, memory=memory, **fields)
    for window in windows:
        known = {}
        if learner.memory.size:
            numbers = world.numbers(learner.memory.x)
            known = dict(zip(numbers, learner.memory[EMBEDDING].clone(), strict=True))
        learner.learn(world.batch(LABELS[window], WINDOWS[window]))
        numbers = world.numbers(learner.x_scored)
        known |= dict(zip(numbers, learner.before(learner.x_scored).detach(), strict=True))
        if len(learner.x_stored):
            estimates = learner.context.z.detach()
            known |= dict(zip(world.numbers(learner.x_stored), estimates, strict=True))
        for slot in range(learner.memory.size):
            (number,) = world.numbers(learner.memory.x[slot : slot + 1])
            torch.testing.assert_close(learner.memory[EMBEDDING][slot], known[number])


class WatchedLeavingOneOut(Watched, Estimated):
    """Keeps R, what it was scored by, and the modules before the step."""


def naive_leave_one_out(learner, batch) -> float:
    """The loss of a step, example by example, where all of the classes in play is embedded."""
    if not len(learner.x_stored):
        return 0.0
    with torch.no_grad():
        stored, new = learner.before(learner.x_stored), learner.before(batch.x)
    classes = learner.y_stored.tolist()
    labels = [learner.classes.index(label) for label in batch.y.tolist()]
    scored = [(z, own, None) for z, own in zip(new, labels, strict=True)]
    scored += [(stored[place], own, place) for place, own in enumerate(classes)]
    terms = []
    for z, own, place in scored:
        logs, counts = {}, {}
        for column in set(classes):
            members = [i for i, c in enumerate(classes) if c == column and i != place]
            if members:
                logs[column] = ((z - stored[members].mean(dim=0)) * 2.0).square().sum()
                counts[column] = len(members)
        if own not in logs or len(logs) < 2:
            continue
        variance = 1 + len(counts) / sum(counts.values())
        values = {c: -0.5 * d / variance for c, d in logs.items()}
        terms.append(torch.stack(list(values.values())).logsumexp(0) - values[own])
    return float(torch.stack(terms).mean()) if terms else 0.0


@pytest.mark.parametrize("through", [False, True])
def test_leaving_one_out_scores_each_by_all_others(world, through):
    """All of each class embedded; each replayed example told apart from its own class's mean."""
    fields = {"posterior": "leave-one-out", "sample": 30, "replay": 300, "mean_gradient": through}
    masks = {"train_mask": "seen", "replay_mask": "seen"}
    learner = learner_on(world, WatchedLeavingOneOut, memory=40, **fields, **masks)
    losses = []
    for batch in pairs(world, rounds=3):
        losses.append(learner.learn(batch).loss)
        assert losses[-1] == pytest.approx(naive_leave_one_out(learner, batch), rel=1e-6)
    assert sum(loss > 0 for loss in losses) > 8


@pytest.mark.parametrize("replay_mask", ["seen", "task"])
def test_leaving_one_out_replays_a_few_of_few_classes(world, replay_mask):
    """Those of the batch's task, then others: single classes, or tasks as a whole."""
    fields = {**LEFT_OUT, "replay": 8, "replay_mask": replay_mask}
    learner = learner_on(world, Watched, memory=40, **fields)
    passed = passes_of(learner)
    partners = Counter()
    for batch in pairs(world, rounds=12):
        held = [label for label, _ in world.who(learner.memory.x)] if learner.memory.size else []
        passed.clear()
        learner.learn(batch)
        drawn = Counter(held[slot] for slot in learner.drawn.tolist())
        stored = Counter(held)
        assert drawn == {label: min(2, stored[label]) for label in drawn}
        assert set(batch.task.classes) & set(held) <= set(drawn)
        assert len(drawn) == min(4, len(stored))  # 8 replays, 2 of a class
        assert passed == [len(batch) + drawn.total()]
        for label in drawn:
            partners["whole" if label ^ 1 in drawn else "single"] += 1
    assert (partners["single"] > 0) == (replay_mask == "seen")


def test_the_gradient_through_left_out_means_is_told_from_none(world):
    """Stopped, a replayed example moves nothing but itself."""
    one, other = (
        learner_on(world, memory=40, **LEFT_OUT, replay=8, mean_gradient=through)
        for through in (False, True)
    )
    losses = [[each.learn(batch).loss for batch in pairs(world, 3)] for each in (one, other)]
    assert losses[0] != losses[1]


def test_estimated_means_are_right_on_average(world):
    """Over the draws of what to embed, from one state with stale caches."""
    learner = learner_on(world, Estimated, **SAMPLED, lr=0.5)
    for batch in pairs(world, rounds=5):
        learner.learn(batch)
    batch = world.batch([0, 1, 0], PAIRS[0])
    x, y, task_idx = learner.begin_step(batch)
    replay = learner.sample_replay(task_idx, y, y).slots
    rest = learner.context_slots(learner.masks(task_idx, replay), replay, y)
    means, errors = [], []
    for seed in range(600):
        learner.cache.generator.manual_seed(seed)
        _, given = learner.embed_step(x, replay, rest)
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


def test_the_fitted_scale_is_not_that_of_the_estimates(world):
    """From caches that say nothing, over the draws; without what estimates lack it is far off."""
    learner = learner_on(world, Estimated, **SAMPLED, embedding_scale="fitted", lr=1e-9)
    for batch in pairs(world, rounds=5):
        learner.learn(batch)
    x, y, task_idx = learner.begin_step(world.batch([0, 1, 0]))  # every class is needed
    replay = learner.sample_replay(task_idx, y, y).slots
    rest = learner.context_slots(learner.masks(task_idx, replay), replay, y)
    exact = float(learner.condition(Context(rest, learner.embed_stored(rest))).scale)
    fitted, wrong = [], []
    for seed in range(200):
        learner.cache.generator.manual_seed(seed)
        learner.memory[EMBEDDING][:] = 0
        _, given = learner.embed_step(x, replay, rest)
        fitted.append(float(learner.condition(given).scale) ** -2)
        wrong.append(float(learner.condition(given._replace(missing=None)).scale) ** -2)
    assert sum(fitted) / 200 == pytest.approx(exact**-2, rel=0.15)
    assert sum(wrong) / 200 < 0.8 * exact**-2


def test_replayed_examples_do_not_explain_themselves(world):
    """What R looks like now does not change what it is scored by; its caches are renewed."""
    learner = learner_on(world, Estimated, **SAMPLED)
    for batch in pairs(world):
        learner.learn(batch)
    x, y, task_idx = learner.begin_step(world.batch([0, 1], PAIRS[0]))
    replay = learner.sample_replay(task_idx, y, y).slots
    rest = learner.context_slots(learner.masks(task_idx, replay), replay, y)
    given = []
    for offset in (0.0, 3.0):
        learner.cache.generator.manual_seed(0)
        learner.memory.x[replay] += offset
        given.append(learner.embed_step(x, replay, rest)[1])
    assert torch.equal(given[0].z, given[1].z)


def test_each_example_of_a_class_is_embedded_equally_often(world):
    cache = learner_on(world, **SAMPLED).cache
    y = torch.tensor([0, 0, 0, 0, 3, 3, 3, 1])
    total = torch.zeros(8)
    for _ in range(3000):
        sampled = cache.draw(y)
        assert torch.bincount(y[sampled], minlength=4).tolist() == [2, 1, 0, 2]
        total += sampled
    expected = torch.tensor([2 / 4] * 4 + [2 / 3] * 3 + [1])
    assert (total / 3000 - expected).abs().max() < 5 * (0.25 / 3000) ** 0.5


def test_predictions_are_exact_in_every_mode(world):
    sampled = learner_on(world, **SAMPLED)
    for batch in stream(world):
        sampled.learn(batch)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exact = learner_on(world)
        exact.load_state_dict(sampled.state_dict())
    x = world.batch([0, 1, 2, 3]).x
    for task in WINDOWS:
        assert torch.equal(sampled.predict_logits(x, task), exact.predict_logits(x, task))


def test_caches_are_named_among_the_holdings(world):
    learner = learner_on(world, **SAMPLED)
    assert "cached embeddings" not in learner.memory_usage().bytes
    for batch in stream(world):
        learner.learn(batch)
    size, dim = learner.memory.size, learner.dim
    assert learner.memory_usage().bytes["cached embeddings"] == size * 8 * dim
    assert set(learner.memory_usage().bytes) == {"examples", "cached embeddings"}


def test_a_state_without_caches_goes_on_from_the_sample_alone(world):
    exact, sampled = learner_on(world), learner_on(world, Estimated, **SAMPLED)
    for batch in stream(world):
        exact.learn(batch)
    state = exact.state_dict()
    with pytest.warns(UserWarning, match="other method fields"):
        sampled.load_state_dict(State(state.tensors, {**state.meta, "method": "Estimated"}))
    sampled.learn(world.batch(LABELS[3]))  # the open task: every class is needed
    now = sampled.brute_force()
    drawn = (sampled.context.z - now).abs().amax(dim=1) < 1e-12
    for label in sampled.y_stored.unique():
        own = sampled.y_stored == label
        assert int((own & drawn).sum()) >= min(2, int(own.sum()))
        rest = sampled.context.z[own & ~drawn]
        torch.testing.assert_close(rest, now[own & drawn].mean(dim=0).expand_as(rest))


def test_a_state_with_caches_goes_on_without_them(world):
    exact = learner_on(world, ExactOfFewTasks)
    sampled = learner_on(world, posterior="sampled", sample=30)
    for batch in stream(world):
        sampled.learn(batch)
    state = sampled.state_dict()
    with pytest.warns(UserWarning, match="other method fields"):
        exact.load_state_dict(State(state.tensors, {**state.meta, "method": "ExactOfFewTasks"}))
    assert exact.memory.extra_bytes == {}
    batch = world.batch(LABELS[0], WINDOWS[0])
    assert exact.learn(batch).loss == pytest.approx(sampled.learn(batch).loss, rel=1e-12)


@pytest.mark.parametrize("through", [False, True])
def test_a_state_goes_on_bit_for_bit(world, through):
    fields = {**SAMPLED, "mean_gradient": through}
    whole, again = learner_on(world, **fields), learner_on(world, **fields)
    batches = list(pairs(world))
    for batch in batches[:9]:
        whole.learn(batch)
    again.load_state_dict(whole.state_dict())
    for batch in batches[9:]:
        assert again.learn(batch) == whole.learn(batch)
    ours, theirs = whole.state_dict().tensors, again.state_dict().tensors
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


EARLIER = {"replay_tasks": None, "refresh": 4, "max_age": 20}


@pytest.mark.parametrize("mode", ["grouped", "lazy"])
def test_a_mode_that_was_removed_is_named_in_one_line(world, mode):
    with pytest.raises(InputError, match=f"^method: posterior={mode} was removed") as refused:
        validated(DeepCCG.Config, {"posterior": mode, **EARLIER}, "method")
    assert "posterior=sampled" in str(refused.value)
    assert "\n" not in str(refused.value)
    learner = learner_on(world)
    learner.learn(world.batch(LABELS[0]))
    state = learner.state_dict()
    saved = {**state.meta["config"], "posterior": mode}
    with pytest.raises(StateMismatch, match=f"posterior={mode} was removed"):
        learner.load_state_dict(State(state.tensors, {**state.meta, "config": saved}))


def test_removed_fields_are_read_where_they_did_nothing(world):
    assert DeepCCG.Config.model_validate(EARLIER) == DeepCCG.Config()
    for name, value in (("replay_tasks", 2), ("refresh", 3), ("max_age", 5)):
        with pytest.raises(InputError, match=f"method.{name} is not a field"):
            validated(DeepCCG.Config, {name: value}, "method")
    learner = learner_on(world)
    learner.learn(world.batch(LABELS[0]))
    state = learner.state_dict()
    saved = {**state.meta["config"], **EARLIER}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        learner.load_state_dict(State(state.tensors, {**state.meta, "config": saved}))


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
    learner = learner_on(world, **SAMPLED)
    for batch in stream(world):
        learner.learn(batch)
    state = learner.state_dict()
    name = f"memory.{EMBEDDING}"
    bad = State({**state.tensors, name: damage(state.tensors[name]).clone()}, state.meta)
    with pytest.raises(StateMismatch):
        learner.load_state_dict(bad)
    rest = {k: v for k, v in state.tensors.items() if k != name}
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
    sampled = learner_on(world, **SAMPLED)
    with pytest.warns(UserWarning, match="other method fields"):
        sampled.load_state_dict(State(state.tensors, {**state.meta, "config": older}))


@pytest.mark.parametrize("posterior", ["exact", "sampled"])
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
