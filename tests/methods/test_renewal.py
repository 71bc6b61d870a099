"""``renewal``: stored examples give way at random, so that a class that changes is followed."""

import copy
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import Batch, StateMismatch
from deepccg.learners.error_rates import WINDOW, ClassErrorRates
from deepccg.learners.memory_selection import Selection
from deepccg.methods import DeepCCG, DeepCCGStandardHead

QUOTA = 8


def learner_on(world, memory=QUOTA, **fields):
    fields = {"lr": 1e-6, "embedding_scale": 1.0, **fields}
    return DeepCCG(world.network(), DeepCCG.Config(**fields), memory=memory)


def keeps_what_is_stored(self, candidates):
    """A selection that takes a new example only where there is room."""
    del self
    place = candidates.real.cumsum(dim=1) <= candidates.quota[:, None]
    return candidates.real & place  # stored candidates come first


@pytest.mark.parametrize(("renewal", "steps"), [(0.0, 100), (0.2, 600), (1.0, 300)])
def test_a_share_of_new_examples_displaces_any_stored_one(world, monkeypatch, renewal, steps):
    monkeypatch.setattr(Selection, "select", keeps_what_is_stored)
    learner = learner_on(world, renewal=renewal, replay=0)
    learner.learn(world.batch([0] * QUOTA))
    entered, lives, since = 0, [], dict.fromkeys(world.numbers(learner.memory.x), 0)
    for step in range(steps):
        learner.learn(world.batch([0]))
        now = set(world.numbers(learner.memory.x))
        assert len(now) == learner.memory.size == QUOTA
        entered += len(world.log) - 1 in now
        lives += [step - since.pop(gone) for gone in since.keys() - now]
        since |= dict.fromkeys(now - since.keys(), step)
    spread = math.sqrt(steps * renewal * (1 - renewal))
    assert abs(entered - steps * renewal) <= 4 * spread
    assert len(lives) == entered
    if renewal:  # a life ends at each step with probability renewal / quota
        mean = QUOTA / renewal
        assert np.mean(lives) == pytest.approx(mean, abs=4 * mean / math.sqrt(len(lives)))


def test_classes_that_did_not_come_keep_theirs(world):
    learner = learner_on(world, memory=2 * QUOTA, renewal=1.0)
    for _ in range(QUOTA):
        learner.learn(world.batch([0, 1]))
    before = {n for n in world.numbers(learner.memory.x) if world.log[n][0] == 0}
    for _ in range(30):
        learner.learn(world.batch([1, 1]))
    after = set(world.numbers(learner.memory.x))
    assert before <= after
    assert sum(world.log[n][0] == 1 for n in after) == QUOTA


def test_a_class_that_must_share_gives_up_by_selection_alone(world):
    plain, renewing = (learner_on(world, renewal=renewal) for renewal in (0.0, 1.0))
    for batch in (world.batch([0] * QUOTA), world.batch([1])):
        for learner in (plain, renewing):
            learner.learn(batch)
    assert torch.equal(plain.memory.x, renewing.memory.x)


def test_without_renewal_a_memory_is_of_early_examples(world):
    """The fact that ``renewal`` is there for; a uniform sample has its median at 400."""
    learner = learner_on(world)
    for _ in range(800):
        learner.learn(world.batch([0]))
    assert np.median(world.numbers(learner.memory.x)) < 200


@pytest.mark.parametrize("selector", ["reservoir", "random"])
def test_selectors_at_random_do_not_ask(world, selector):
    plain, renewing = (
        learner_on(world, renewal=renewal, selector=selector) for renewal in (0.0, 1.0)
    )
    for _ in range(20):
        batch = world.batch([0, 1, 1])
        for learner in (plain, renewing):
            learner.learn(batch)
    assert torch.equal(plain.memory.x, renewing.memory.x)


@pytest.mark.parametrize("selector", ["lasso", "greedy", "swap"])
def test_every_other_selector_renews(world, selector):
    learner = learner_on(world, renewal=1.0, selector=selector, lasso_steps=5)
    for _ in range(20):
        learner.learn(world.batch([0, 1]))
        assert {len(world.log) - 2, len(world.log) - 1} <= set(world.numbers(learner.memory.x))


@given(
    batches=st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.sampled_from([0.0, 1.0])), max_size=6),
        max_size=12,
    )
)
def test_rates_are_moving_averages_of_each_class_alone(batches):
    errors, one_by_one = ClassErrorRates(), dict.fromkeys(range(4), 0.0)
    for batch in batches:
        wrong = {c: [w for label, w in batch if label == c] for c in range(4)}
        y, each = (np.array([row[k] for row in batch]) for k in (0, 1))
        errors.note(y.astype(np.int64), each.astype(np.float64))
        for c, own in wrong.items():
            for _ in own:  # examples of a class in one batch count as equally recent
                one_by_one[c] += (np.mean(own) - one_by_one[c]) / WINDOW
    np.testing.assert_allclose(errors.of(range(4)), list(one_by_one.values()), atol=1e-12)


def test_what_counts_is_how_each_new_example_would_have_been_classified(world):
    learner = learner_on(world, memory=30, renewal="errors", replay=0)
    rates = np.zeros(3)
    for _ in range(15):
        batch = world.batch([0, 1, 1, 2])
        if learner.memory.size:
            probability = learner.predict_proba(batch.x).numpy()
            wrong = 1 - probability[np.arange(4), [0, 1, 1, 2]]
            for c, own in enumerate((wrong[:1], wrong[1:3], wrong[3:])):
                rates[c] += (1 - (1 - 1 / WINDOW) ** len(own)) * (own.mean() - rates[c])
        learner.learn(batch)
    assert 0.05 < rates.min() < rates.max() < 1
    np.testing.assert_allclose(learner.error_rates.of([0, 1, 2]), rates, rtol=1e-9)


def far_apart(world, labels):
    batch = world.batch(labels)
    batch.x[:, 2] += 6 * batch.y
    return batch


@pytest.mark.parametrize(
    ("renewal", "low", "high"), [(0.0, 0.0, 0.4), (0.5, 0.9, 1.0), ("errors", 0.9, 1.0)]
)
def test_classes_that_change_places_are_followed(world, renewal, low, high):
    learner = learner_on(world, memory=2 * QUOTA, renewal=renewal, lr=0.01)
    for _ in range(100):
        learner.learn(far_apart(world, [0, 1]))
    for _ in range(100):
        batch = far_apart(world, [0, 1])
        learner.learn(Batch(batch.x, 1 - batch.y))
    batch = far_apart(world, [0, 1] * 50)
    right = (learner.predict(batch.x) == 1 - batch.y).double().mean()
    assert low <= right <= high


def test_a_loaded_learner_renews_as_the_saved_one_would(world):
    learner = learner_on(world, memory=2 * QUOTA, renewal="errors", lr=0.01)
    for _ in range(30):
        learner.learn(world.batch([0, 1, 1]))
    state = learner.state_dict()
    loaded, forgetful = (
        learner_on(world, memory=2 * QUOTA, renewal="errors", lr=0.01) for _ in range(2)
    )
    loaded.load_state_dict(state)
    assert np.array_equal(loaded.error_rates.rates, learner.error_rates.rates)
    before = copy.deepcopy(state)
    del before.tensors["errors.rates"], before.meta["parts"]["errors"]
    forgetful.load_state_dict(before)  # of a learner that did not count
    assert not forgetful.error_rates.of([0, 1]).any()
    for _ in range(30):
        batch = world.batch([0, 1, 1])
        for each in (learner, loaded, forgetful):
            each.learn(batch)
    assert torch.equal(loaded.memory.x, learner.memory.x)
    assert not torch.equal(forgetful.memory.x, learner.memory.x)


@pytest.mark.parametrize("rates", [torch.tensor([0.5, 1.5]), torch.zeros(2, 2), torch.zeros(2)])
def test_rates_that_are_none_are_refused(world, rates):
    learner = learner_on(world, renewal="errors")
    learner.learn(world.batch([0, 1]))
    state = learner.state_dict()
    state.tensors["errors.rates"] = rates.double() if rates.any() or rates.dim() > 1 else rates
    with pytest.raises(StateMismatch, match="rates of errors"):
        learner_on(world, renewal="errors").load_state_dict(state)


def test_a_head_counts_no_errors():
    with pytest.raises(ValueError, match="renewal=errors is for deepccg alone"):
        DeepCCGStandardHead.Config(renewal="errors")


@pytest.mark.parametrize("renewal", [-0.1, 1.1, "sometimes"])
def test_what_is_no_probability_is_refused(renewal):
    with pytest.raises(ValueError, match="renewal"):
        DeepCCG.Config(renewal=renewal)


def test_what_is_counted_is_named_among_what_is_held(world):
    learner = learner_on(world, renewal="errors")
    learner.learn(world.batch([0, 1, 2]))
    learner.learn(world.batch([0, 1, 2]))
    assert learner.memory_usage().bytes["rates of errors"] == 3 * 8
    assert "rates of errors" not in learner_on(world).memory_usage().bytes
