"""CCG: order, merging and unlearning; features that wait; half-lives; what it keeps."""

import copy
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from torch import Tensor, nn

from deepccg.core import Batch, InputError, Learner, StateMismatch, Task
from deepccg.core.errors import Diverged
from deepccg.methods import CCG, NCM
from deepccg.networks import Flatten, Fourier, Patches

CLASSES, FEATURES = 4, 6
QUERY = torch.randn(30, FEATURES, generator=torch.Generator().manual_seed(99))


def examples(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=generator)
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(7))
    return centres[y] + 0.7 * torch.randn(count, FEATURES, generator=generator), y


def learner(memory: int = 0, fourier: int = 0, double: bool = False, **fields: object) -> CCG:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = Fourier(FEATURES, fourier) if fourier else Flatten(FEATURES)
    if double:
        network.register_buffer("precision", torch.zeros(1))
        network = network.double()
    return CCG(network, CCG.Config(**fields), memory=memory, seed=0)


def taught(model: CCG, x: Tensor, y: Tensor, size: int = 5) -> CCG:
    for each, labels in zip(x.split(size), y.split(size), strict=True):
        model.learn(Batch(each, labels))
    return model


def probabilities(model: Learner, classes: int = CLASSES) -> Tensor:
    """By label: columns come in order of arrival."""
    found = model.predict_proba(QUERY)
    by_label = torch.zeros(len(QUERY), classes, dtype=found.dtype)
    by_label[:, list(model.classes)] = found
    return by_label


def assert_agree(one: Learner, other: Learner, tolerance: float = 1e-6) -> None:
    torch.testing.assert_close(
        probabilities(one), probabilities(other), rtol=0, atol=tolerance, check_dtype=False
    )


fields_of = st.sampled_from(
    [{}, {"predictive": "student-t"}, {"class_prior": "observed"}, {"covariance": "isotropic"}]
)
# What rounding leaves of a probability, in single and in double precision.
precisions = st.sampled_from([(False, 1e-5), (True, 1e-10)])


@given(st.integers(0, 1000), st.integers(1, 9), fields_of, precisions)
@settings(max_examples=30, deadline=None)
def test_the_order_does_not_matter(
    seed: int, size: int, fields: dict, precision: tuple[bool, float]
) -> None:
    double, tolerance = precision
    x, y = examples(60)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(seed))
    shuffled = taught(learner(double=double, **fields), x[order], y[order], size)
    by_class = torch.argsort(y, stable=True)
    other = taught(learner(double=double, **fields), x[by_class], y[by_class])
    assert_agree(shuffled, other, tolerance)


@given(st.integers(0, 1000), st.permutations([0, 1, 2, 3]), precisions)
@settings(max_examples=20, deadline=None)
def test_parts_merge_in_any_tree(
    seed: int, order: list[int], precision: tuple[bool, float]
) -> None:
    double, tolerance = precision
    x, y = examples(60)
    of = torch.randint(4, (60,), generator=torch.Generator().manual_seed(seed))
    of[of == seed % 4] = (seed + 1) % 4  # one learner has seen nothing
    parts = [learner(double=double) for _ in range(4)]
    for k in set(of.tolist()):
        taught(parts[order[k]], x[of == k], y[of == k])
    parts[0].merge(parts[1])
    parts[2].merge(parts[3])
    parts[2].merge(parts[0])
    whole = taught(learner(double=double), x, y)
    assert_agree(parts[2], whole, tolerance)
    assert sorted(parts[2].classes) == sorted(whole.classes)
    seen = [
        dict(zip(m.classes, m.class_table.seen.tolist(), strict=True)) for m in (parts[2], whole)
    ]
    assert seen[0] == seen[1]


@given(st.integers(0, 1000), st.integers(1, 30), precisions)
@settings(max_examples=30, deadline=None)
def test_unlearning_is_never_having_learned(
    seed: int, count: int, precision: tuple[bool, float]
) -> None:
    double, tolerance = precision
    x, y = examples(60, seed)
    model = taught(learner(double=double), x, y)
    model.unlearn(x[:count], y[:count])
    without = taught(learner(double=double), x[count:], y[count:])
    if set(y[count:].tolist()) == set(y.tolist()):
        assert_agree(model, without, 3 * tolerance)


def test_a_class_is_unlearned_and_can_come_again() -> None:
    x, y = examples(80)
    model = taught(learner(), x, y)
    model.unlearn(x[y == 2], y[y == 2])
    assert_agree(model, taught(learner(), x[y != 2], y[y != 2]), 1e-5)
    assert not (model.predict(QUERY) == 2).any()
    loaded = learner()
    loaded.load_state_dict(model.state_dict())
    assert_agree(loaded, model)
    taught(model, x[y == 2], y[y == 2])
    assert_agree(model, taught(learner(), x, y), 1e-5)


def test_nothing_is_left_of_everything_unlearned() -> None:
    x, y = examples(30)
    model = taught(learner(), x, y)
    model.unlearn(x, y)
    with pytest.raises(InputError, match="no class to predict"):
        model.predict(QUERY)
    statistics = model.statistics.members[0].statistics
    assert statistics.scatter is None
    assert float(statistics.trace) == 0
    again = learner()
    again.load_state_dict(model.state_dict())
    taught(again, x, y)
    taught(model, x, y)
    assert torch.equal(again.predict_logits(QUERY), model.predict_logits(QUERY))
    assert_agree(model, taught(learner(), x, y))


def test_unlearning_is_refused_where_it_cannot_be_true() -> None:
    x, y = examples(20)
    model = taught(learner(), x, y)
    before = probabilities(model)
    with pytest.raises(InputError, match=r"labels \[9\] were never learned"):
        model.unlearn(x[:1], torch.tensor([9]))
    many = x[y == 0].repeat(2, 1)
    with pytest.raises(InputError, match="of class 0 fewer examples were learned"):
        model.unlearn(many, torch.zeros(len(many), dtype=torch.int64))
    assert torch.equal(probabilities(model), before)
    fading = taught(learner(half_lives=(10.0,)), x, y)
    with pytest.raises(InputError, match="forget nothing"):
        fading.unlearn(x[:1], y[:1])
    with pytest.raises(InputError, match="forget nothing"):
        fading.merge(learner(half_lives=(10.0,)))


def test_other_features_do_not_merge() -> None:
    x, y = examples(240)
    first, second = (taught(learner(memory=100, fourier=20), x[i:], y[i:]) for i in (0, 110))
    with pytest.raises(InputError, match="same features"):
        first.merge(second)
    with pytest.raises(InputError, match="same fields"):
        first.merge(learner(prior_strength=3))


def test_learners_merge_while_their_features_wait() -> None:
    x, y = examples(240)
    whole = taught(learner(memory=100, fourier=20), x, y)
    ready = taught(learner(memory=100, fourier=20), x[:120], y[:120])
    part = copy.deepcopy(ready)
    part.unlearn(x[:120], y[:120])  # the same features, and nothing seen
    taught(part, x[120:200], y[120:200])
    waiting = taught(learner(memory=100, fourier=20), x[200:], y[200:])
    assert waiting.memory.size == 40
    assert not waiting.ready
    ready.merge(part)
    ready.merge(waiting)
    assert_agree(ready, whole, 1e-5)
    late = taught(learner(memory=100, fourier=20), x[200:], y[200:])
    late.merge(taught(learner(memory=100, fourier=20), x[:200], y[:200]))
    assert_agree(late, whole, 1e-5)


def test_the_plug_in_is_scikit_learns_discriminant_analysis() -> None:
    x, y = examples(200)
    model = taught(learner(prior_strength=10), x, y)
    reference = LinearDiscriminantAnalysis(
        solver="lsqr", shrinkage=10 / 206, priors=[1 / CLASSES] * CLASSES
    )
    reference.fit(x.double().numpy(), y.numpy())
    expected = torch.from_numpy(reference.predict_proba(QUERY.double().numpy()))
    # It divides by N instead of N - C, standardises before it shrinks, and rounds no ridge.
    torch.testing.assert_close(probabilities(model).double(), expected, rtol=0, atol=0.1)
    agree = model.predict(QUERY) == torch.from_numpy(reference.predict(QUERY.numpy()))
    assert agree.double().mean() > 0.9


@pytest.mark.parametrize("predictive", ["plug-in", "student-t"])
def test_tasks_mask_and_classes_grow(predictive: str) -> None:
    x, y = examples(60)
    model = learner(predictive=predictive)
    early = y < 2
    taught(model, x[early], y[early])
    assert set(model.classes) == {0, 1}
    taught(model, x[~early], y[~early])
    everything = probabilities(model)
    task = Task(0, (3, 1))
    masked = model.predict_proba(QUERY, task)
    allowed = [column in (3, 1) for column in model.columns(task)]
    assert (masked[:, [i for i, own in enumerate(allowed) if not own]] == 0).all()
    renormalised = everything[:, [1, 3]] / everything[:, [1, 3]].sum(dim=1, keepdim=True)
    found = masked[:, [model.columns(task).index(c) for c in (1, 3)]]
    torch.testing.assert_close(found, renormalised, rtol=1e-4, atol=1e-5)


def test_observed_frequencies_are_bayes_rule() -> None:
    x, y = examples(60)
    keep = (y == 0) | (torch.arange(60) % 5 == 0)
    x, y = x[keep], y[keep]
    uniform, observed = (
        taught(learner(class_prior=kind), x, y) for kind in ("uniform", "observed")
    )
    share = torch.bincount(y, minlength=CLASSES) / len(y)
    expected = probabilities(uniform) * share
    expected /= expected.sum(dim=1, keepdim=True)
    torch.testing.assert_close(probabilities(observed), expected, rtol=1e-4, atol=1e-6)


def test_features_wait_for_enough_examples_within_the_budget() -> None:
    x, y = examples(150)
    model = learner(memory=60, fourier=30)
    for step in range(0, 60, 10):
        model.learn(Batch(x[step : step + 10], y[step : step + 10]))
        assert model.memory.size == step + 10
        assert model.memory_usage().examples == step + 10
        assert model.statistics.members[0].statistics.scatter is None  # no room is taken before
        assert torch.isfinite(model.predict_proba(QUERY)).all()
    model.learn(Batch(x[60:70], y[60:70]))
    assert model.ready
    assert model.memory.size == 0
    assert model.memory_usage().examples == 0
    fitted = model.network.mean.clone()
    torch.testing.assert_close(fitted, x[:70].mean(dim=0))
    taught(model, x[70:], y[70:])
    assert torch.equal(model.network.mean, fitted)
    assert int(model.statistics.members[0].statistics.count.sum()) == 150


def test_what_waits_is_predicted_with_and_asking_changes_nothing() -> None:
    x, y = examples(80)
    asked, unasked = learner(memory=200, fourier=20), learner(memory=200, fourier=20)
    for each, labels in zip(x.split(8), y.split(8), strict=True):
        asked.learn(Batch(each, labels))
        asked.predict(QUERY)
        unasked.learn(Batch(each, labels))
    held, other = (model.state_dict() for model in (asked, unasked))
    assert all(torch.equal(held.tensors[name], other.tensors[name]) for name in held.tensors)
    accuracy = (asked.predict(x) == y).double().mean()
    assert accuracy > 0.7  # chance is 0.25


def test_without_a_budget_the_first_batch_has_to_do() -> None:
    x, y = examples(20)
    model = learner(memory=0, fourier=10)
    model.learn(Batch(x[:10], y[:10]))
    assert model.ready
    assert model.memory.size == 0


@pytest.mark.parametrize("waiting", [True, False])
@pytest.mark.parametrize("fields", [{}, {"half_lives": (20.0, 5.0)}, {"predictive": "student-t"}])
def test_a_saved_learner_continues_bit_for_bit(waiting: bool, fields: dict) -> None:
    x, y = examples(120)
    memory = 90 if waiting else 20
    one = taught(learner(memory=memory, fourier=12, **fields), x[:50], y[:50])
    assert one.ready != waiting
    other = learner(memory=memory, fourier=12, **fields)
    other.load_state_dict(one.state_dict())
    for begin in range(50, 120):  # asked after every step
        for model in (one, other):
            model.learn(Batch(x[begin : begin + 1], y[begin : begin + 1]))
        if begin == 110:  # one of them is saved and loaded once more
            again = learner(memory=memory, fourier=12, **fields)
            again.load_state_dict(other.state_dict())
            other = again
        assert torch.equal(one.predict_logits(QUERY), other.predict_logits(QUERY))
    left, right = one.state_dict(), other.state_dict()
    assert left.meta == right.meta
    assert all(torch.equal(left.tensors[name], right.tensors[name]) for name in left.tensors)


def test_counts_that_do_not_fit_the_classes_are_refused() -> None:
    x, y = examples(20)
    state = taught(learner(), x, y).state_dict()
    state.tensors["statistics.count"][0, 0] += 1
    with pytest.raises(StateMismatch, match="other examples than were counted"):
        learner().load_state_dict(state)


def test_bytes_are_those_of_the_statistics() -> None:
    x, y = examples(40)
    usage = taught(learner(), x, y).memory_usage()
    means = CLASSES * (FEATURES * 4 + 8)
    assert usage.bytes == {"class means": means, "covariance": FEATURES * (FEATURES + 1) // 2 * 4}
    nearest = NCM(Flatten(FEATURES))
    taught(nearest, x, y)
    assert nearest.memory_usage().bytes == {"class means": means}


@given(st.integers(200, 10**7), st.integers(1, 100), st.integers(0, 2))
def test_the_largest_embedding_that_fits(size: int, classes: int, half_lives: int) -> None:
    config = CCG.Config(half_lives=(10.0,) * half_lives)
    dim = CCG.largest_dim(config, size, classes)
    assert dim is not None

    def needed(dim: int) -> int:
        return (1 + half_lives) * (4 * dim * (dim + 1) // 2 + classes * (4 * dim + 8))

    assert dim == 0 or needed(dim) <= size
    assert needed(dim + 2) > size


def test_features_out_of_bounds_are_not_learned() -> None:
    x, y = examples(20)
    network = nn.Linear(FEATURES, 3)
    network.weight.data.fill_(1e10)
    network.dim = 3
    model = taught(CCG(network), x * 1e-10, y)
    before = model.state_dict()
    with pytest.raises(Diverged, match="scale the inputs"):
        model.learn(Batch(x[:5] * 1e18, y[:5]))
    after = model.state_dict()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    taught(model, x * 1e-10, y)
    CCG(network).load_state_dict(model.state_dict())


def test_half_lives_follow_classes_that_change() -> None:
    """Two clouds swap their labels: what never forgets is wrong for as long as it was right."""
    generator = torch.Generator().manual_seed(0)
    steady, fading = learner(), learner(half_lives=(50.0, 10.0))
    right = {"steady": 0, "fading": 0}
    for step in range(400):
        y = torch.randint(2, (1,), generator=generator)
        side = y if step < 200 else 1 - y
        x = torch.randn(1, FEATURES, generator=generator) + 3.0 * side[:, None]
        for name, model in (("steady", steady), ("fading", fading)):
            if step >= 250:
                right[name] += int(model.predict(x) == y)
            model.learn(Batch(x, y))
    assert right["fading"] > 140  # of 150
    assert right["steady"] < 90


def test_half_lives_do_not_forget_what_is_absent() -> None:
    """A class that does not come is not judged: the statistics that remember it keep its trust."""
    x, y = examples(400)
    model = learner(half_lives=(20.0,))
    taught(model, x[y < 2], y[y < 2])
    for _ in range(5):
        taught(model, x[y >= 2], y[y >= 2])
    old = y < 2
    steady = taught(learner(), x, y)
    found, reference = ((m.predict(x[old]) == y[old]).double().mean() for m in (model, steady))
    assert found > reference - 0.05


def test_exported_modules_say_the_same() -> None:
    x, y = examples(120)
    for fields in (
        {},
        {"predictive": "student-t"},
        {"half_lives": (30.0,)},
        {"covariance": "isotropic"},
    ):
        model = taught(learner(memory=50, fourier=15, **fields), x, y)
        exported = model.inference_module()(QUERY).softmax(dim=1)
        torch.testing.assert_close(exported, model.predict_proba(QUERY), rtol=1e-3, atol=1e-4)


def test_images_through_patches() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(60) % 2
    stripes = (torch.arange(16) % 4 < 2).float() * 160
    noise = 60 * torch.rand(60, 3, 16, 16, generator=generator)
    across = torch.where((y == 0)[:, None, None, None], stripes[None, None, :, None], stripes)
    x = (across + noise).to(torch.uint8)
    model = CCG(Patches((3, 16, 16), filters=8), memory=30, seed=0)
    model.learn(Batch(x[:20], y[:20], Task(0, (0, 1))))
    model.learn(Batch(x[20:40], y[20:40], Task(0, (0, 1))))
    assert (model.predict(x[40:]) == y[40:]).all()
    assert math.isclose(float(model.predict_proba(x[40:]).sum()), 20, rel_tol=1e-5)


def test_settings_that_contradict_are_refused() -> None:
    with pytest.raises(ValueError, match="goes with predictive plug-in"):
        CCG.Config(covariance="isotropic", predictive="student-t")
