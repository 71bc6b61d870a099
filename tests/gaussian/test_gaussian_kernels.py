"""The compiled closed forms compute what PyTorch and NumPy compute, but for rounding."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch import nn

from deepccg.core import Batch, Task
from deepccg.gaussian import (
    Candidates,
    Posterior,
    class_posterior,
    fitted_scale,
    greedy_selection,
    kernels,
    log_conditional_marginal_likelihood,
    log_predictive_density,
    squared_distances,
    target_weights,
)
from deepccg.memory import MemoryStore, candidates_of
from deepccg.methods import METHODS

pytestmark = pytest.mark.skipif(
    kernels.unavailable_reason() is not None, reason=f"{kernels.unavailable_reason()}"
)

DTYPES = st.sampled_from([torch.float32, torch.float64])
SIZES = st.integers(1, 40)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {"rtol": 2e-4, "atol": 2e-4} if dtype == torch.float32 else {"rtol": 1e-9, "atol": 1e-9}


def log_prob_by_pytorch(z, y, posterior, scale, mask, variance):
    distance = squared_distances(z, posterior.mean) * scale.square()
    density = log_predictive_density(distance, posterior.count, mask, z.shape[1], variance)
    return log_conditional_marginal_likelihood(density, y)


@given(
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 30),
    classes=st.integers(1, 12),
    dim=SIZES,
    dtype=DTYPES,
    variance=st.sampled_from(["shared", "per-class"]),
    same_mask=st.booleans(),
)
def test_log_probabilities_and_gradient(seed, rows, classes, dim, dtype, variance, same_mask):
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, dim, generator=random, dtype=dtype) + 3
    mean = torch.randn(classes, dim, generator=random, dtype=dtype) + 3
    count = torch.randint(0, 4, (classes,), generator=random) * 0.75  # some classes are unknown
    posterior = Posterior(mean, count.to(dtype))
    y = torch.randint(0, classes, (rows,), generator=random)
    scale = torch.rand((), generator=random, dtype=dtype) + 0.1
    if same_mask:
        mask = (torch.rand(classes, generator=random) < 0.7).expand(rows, -1)
    else:
        mask = torch.rand(rows, classes, generator=random) < 0.7
    ours, theirs = z.clone().requires_grad_(), z.clone().requires_grad_()
    log_prob, valid = kernels.conditional_marginal_likelihood(
        ours, y, posterior, scale, mask, variance
    )
    expected, expected_valid = log_prob_by_pytorch(theirs, y, posterior, scale, mask, variance)
    assert torch.equal(valid, expected_valid)
    torch.testing.assert_close(log_prob, expected, **tolerance(dtype))
    weight = torch.randn(len(log_prob), generator=random, dtype=dtype)
    for z_, value in ((ours, log_prob), (theirs, expected)):
        (value * weight).sum().backward()
        assert z_.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad, **tolerance(dtype))


def test_gradient_passes_gradcheck():
    random = torch.Generator().manual_seed(0)
    z = torch.randn(4, 5, generator=random, dtype=torch.float64, requires_grad=True)
    posterior = Posterior(torch.randn(3, 5, generator=random, dtype=torch.float64), torch.ones(3))
    y, mask = torch.tensor([0, 1, 2, 0]), torch.ones(4, 3, dtype=torch.bool)
    for variance in ("shared", "per-class"):
        assert torch.autograd.gradcheck(
            lambda z, v=variance: kernels.conditional_marginal_likelihood(
                z, y, posterior, torch.tensor(1.5), mask, v
            )[0],
            z,
        )


def test_tensors_that_are_not_contiguous():
    random = torch.Generator().manual_seed(1)
    z = torch.randn(6, 8, generator=random).T
    mean = torch.randn(6, 4, generator=random).T
    mask = torch.rand(4, 8, generator=random).T < 0.9
    y = torch.arange(16)[::2] % 4
    posterior = Posterior(mean, torch.arange(8.0)[::2] + 1)
    ours = kernels.conditional_marginal_likelihood(
        z, y, posterior, torch.tensor(1.0), mask, "shared"
    )
    theirs = log_prob_by_pytorch(z, y, posterior, torch.tensor(1.0), mask, "shared")
    torch.testing.assert_close(ours, theirs)
    (found, _), expected = kernels.centred(z, y, 5), class_posterior(z, y, 5)
    torch.testing.assert_close((found.mean, found.count), (expected.mean, expected.count))


@pytest.mark.parametrize("far", [1e17, 1e19])
def test_infinite_distances(far):
    """A class at an infinite distance is no class of the denominator, here as there."""
    z = torch.tensor([[0.0] * 50, [far] * 50])
    posterior = Posterior(torch.tensor([[0.0] * 50, [1.0] * 50, [far] * 50]), torch.ones(3))
    arguments = torch.tensor([0, 2]), posterior, torch.tensor(1.0), torch.ones(2, 3) > 0, "shared"
    ours = kernels.conditional_marginal_likelihood(z, *arguments)
    theirs = log_prob_by_pytorch(z, *arguments)
    torch.testing.assert_close(ours, theirs)


@given(seed=st.integers(0, 2**32), rows=st.integers(0, 60), classes=SIZES, dim=SIZES, dtype=DTYPES)
def test_posterior_and_deviation(seed, rows, classes, dim, dtype):
    random = torch.Generator().manual_seed(seed)
    z = torch.randn(rows, dim, generator=random, dtype=dtype)
    y = torch.randint(0, classes, (rows,), generator=random)
    expected = class_posterior(z, y, classes)
    posterior, deviation = kernels.centred(z, y, classes)
    assert torch.equal(posterior.count, expected.count)
    torch.testing.assert_close(posterior.mean, expected.mean)
    torch.testing.assert_close(deviation, z - expected.mean[y])
    if rows:
        scale = fitted_scale(z, y, posterior, deviation)
        torch.testing.assert_close(scale, fitted_scale(z, y, expected), rtol=1e-3, atol=0)


def exchange_by_numpy(z, stored_y, batch_y, classes, quota, before, evidence, generator):
    store = MemoryStore(len(stored_y))
    store.append(torch.zeros(len(stored_y), 1), stored_y, torch.zeros_like(stored_y))
    index = candidates_of(classes, store, batch_y)
    weight = target_weights(index.real, index.stored, before if evidence else None)
    candidates = z[torch.from_numpy(index.position)]
    keep = greedy_selection(
        Candidates(
            candidates,
            torch.from_numpy(index.real),
            torch.from_numpy(index.stored),
            torch.einsum("kn,knd->kd", torch.from_numpy(weight).to(z.dtype), candidates),
            torch.from_numpy(quota),
            torch.from_numpy(before),
        ),
        generator,
    ).numpy()
    evicted = index.position[index.stored & ~keep]
    admitted = index.position[index.real & ~index.stored & keep] - store.size
    return evicted, admitted


@given(
    seed=st.integers(0, 2**32),
    stored=st.integers(0, 80),
    new=st.integers(1, 80),
    classes=st.integers(1, 6),
    dim=SIZES,
    evidence=st.booleans(),
    equals=st.booleans(),
)
def test_exchange_is_greedy_selection(seed, stored, new, classes, dim, evidence, equals):
    """The same examples leave and enter, in the same order; of equal ones, any."""
    random = np.random.default_rng(seed)
    z = torch.from_numpy(random.normal(size=(stored + new, dim)))
    if equals:
        z[random.random(len(z)) < 0.2] = z[0].clone()
    y = random.integers(0, classes, stored + new)
    concerned = sorted({*y[stored:].tolist(), *random.integers(0, classes, 2).tolist()})
    concerned = [c for c in concerned if c in y]
    held = np.bincount(y[:stored], minlength=classes)[concerned]
    quota = random.integers(0, 12, len(concerned))
    before = held + random.integers(0, 50, len(concerned)) * (held > 0)
    shuffled = random.permutation(len(z))  # the embeddings lie in another order
    row = np.argsort(shuffled)
    plain_generator, generator = (torch.Generator().manual_seed(seed) for _ in range(2))
    expected = exchange_by_numpy(
        z, torch.from_numpy(y[:stored]), torch.from_numpy(y[stored:]), concerned, quota, before,
        evidence, plain_generator,
    )  # fmt: skip
    found = kernels.greedy_exchange(
        z[shuffled], row, y, stored, concerned, quota,
        before.astype(float) if evidence else np.full(len(before), -1.0), generator,
    )  # fmt: skip
    if equals:
        ours, theirs = (
            {*range(stored), *(stored + admitted)} - {*evicted}
            for evicted, admitted in (found, expected)
        )
        for column in range(classes):
            left, right = (
                sorted(z[i, 0].item() for i in kept if y[i] == column) for kept in (ours, theirs)
            )
            assert left == right
    else:
        assert [part.tolist() for part in found] == [part.tolist() for part in expected]
    assert torch.equal(generator.get_state(), plain_generator.get_state())


def test_ties_are_broken_at_random():
    y, z = np.zeros(6, dtype=np.int64), torch.ones(6, 3)
    random = torch.Generator().manual_seed(0)
    left = np.zeros(6)
    for _ in range(600):
        evicted, admitted = kernels.greedy_exchange(
            z, np.arange(6), y, 6, [0], np.array([5]), np.array([6.0]), random
        )
        assert (len(evicted), len(admitted)) == (1, 0)
        left[evicted] += 1
    assert left.sum() == 600
    assert chisquare(left).pvalue > 1e-4


def stream(tasks: bool, seed: int = 0):
    """Five classes, then seven; some batches bring one class only."""
    random = np.random.default_rng(seed)
    centres = random.normal(size=(7, 6)) * 2
    for step in range(30):
        first = (step // 6) % 5
        y = random.integers(first, first + 3 if tasks else 5 + 2 * (step > 15), 12)
        if step % 7 == 3:
            y[:] = y[0]
        x = torch.from_numpy(centres[y] + random.normal(size=(12, 6)))
        task = Task(first, tuple(range(first, first + 3))) if tasks else None
        yield Batch(x, torch.from_numpy(y), task)


class Curved(nn.Sequential):
    """An embedding that maps no two examples to the same place, as ReLUs do."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 5))
        self.dim = 5


FIELDS = [
    {},
    {"variance": "per-class"},
    {"target": "printed"},
    {"quota": "growing"},
    {"embedding_scale": 2.0},
    {"embedding_scale": "learned"},
    {"posterior": "sampled"},
    {"posterior": "leave-one-out"},
    {"mean_gradient": True},
    {"absent": "batch"},
    {"selector": "swap"},
    {"selection_features": "after"},
    {"reduction": "means", "normalise": True},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "fields"),
    [
        (method, fields)
        for method in ("deepccg", "deepccg-reservoir")
        for fields in FIELDS
        if fields.keys() <= METHODS[method].Config.model_fields.keys()
    ],
    ids=str,
)
@pytest.mark.parametrize("tasks", [False, True])
def test_a_stream_is_learned_as_without_kernels(method, fields, tasks):
    chosen, learners = METHODS[method], []
    for compiled in (False, True):
        torch.manual_seed(0)
        learner = chosen(Curved().double(), chosen.Config(**fields), memory=24, seed=3)
        learner.native = compiled
        for batch in stream(tasks):
            learner.learn(batch)
        learners.append(learner)
    plain, native_one = (learner.state_dict() for learner in learners)
    assert plain.meta == native_one.meta
    for name, value in plain.tensors.items():
        torch.testing.assert_close(native_one.tensors[name], value, rtol=1e-7, atol=1e-9)


def test_only_float32_and_float64_on_the_cpu_are_supported():
    assert kernels.is_supported(torch.zeros(1, dtype=torch.float32))
    assert kernels.is_supported(torch.zeros(1, dtype=torch.float64))
    assert not kernels.is_supported(torch.zeros(1, dtype=torch.bfloat16))
    assert not kernels.is_supported(torch.zeros(1, device="meta"))
