"""Class-conditional Gaussians with a shared covariance, against formulas on all data and SciPy."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate
from scipy.stats import multivariate_normal, multivariate_t
from torch import Tensor

from deepccg.gaussian import (
    ClassScores,
    ClassStatistics,
    RunningClassifier,
    likeliest_strength,
    log_marginal_likelihood,
)
from deepccg.gaussian.shared_covariance import degrees_of_freedom, prior_beside

CPU = torch.device("cpu")


def examples(count: int, dim: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Examples of correlated features of different scales, classes apart and of unequal size."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (count,), generator=generator)
    noise = torch.randn(count, dim, generator=generator, dtype=torch.float64) @ mixing
    means = 2 * torch.randn(classes, dim, generator=generator, dtype=torch.float64)
    return noise + means[y] + 5, y


def statistics_of(
    z: Tensor, y: Tensor, classes: int, dtype: torch.dtype = torch.float64
) -> ClassStatistics:
    made = ClassStatistics(z.shape[1], dtype, CPU)
    made.grow(classes)
    if len(y):
        made.add(z.to(dtype), y)
    return made


def scatter_of(z: Tensor, y: Tensor) -> Tensor:
    """The within-class scatter by its definition."""
    total = torch.zeros(z.shape[1], z.shape[1], dtype=torch.float64)
    for label in y.unique():
        own = z[y == label]
        total += (own - own.mean(dim=0)).T @ (own - own.mean(dim=0))
    return total


def assert_same(one: ClassStatistics, other: ClassStatistics, tolerance: float = 1e-8) -> None:
    for name in ("count", "mean", "trace"):
        a, b = getattr(one, name), getattr(other, name)
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
    assert one.scatter is not None
    assert other.scatter is not None
    torch.testing.assert_close(
        one.scatter.dense(), other.scatter.dense(), rtol=tolerance, atol=tolerance
    )


@given(st.integers(0, 10_000), st.lists(st.integers(1, 9), min_size=1, max_size=8))
def test_batches_of_any_size_give_the_sums_of_all_data(seed: int, sizes: list[int]) -> None:
    z, y = examples(sum(sizes), dim=4, classes=3, seed=seed)
    statistics = statistics_of(z[:0], y[:0], 3)
    for each, labels in zip(z.split(sizes), y.split(sizes), strict=True):
        statistics.add(each, labels)
    assert statistics.scatter is not None
    torch.testing.assert_close(statistics.scatter.dense(), scatter_of(z, y))
    torch.testing.assert_close(statistics.trace, scatter_of(z, y).trace())
    for label in y.unique().tolist():
        torch.testing.assert_close(statistics.mean[label], z[y == label].mean(dim=0))
        assert statistics.count[label] == (y == label).sum()


@given(st.integers(0, 10_000), st.integers(1, 29))
def test_parts_merge_to_the_whole_and_come_apart_again(seed: int, cut: int) -> None:
    z, y = examples(30, dim=3, classes=4, seed=seed)
    whole = statistics_of(z, y, 4)
    merged = statistics_of(z[:cut], y[:cut], 4)
    merged.merge(statistics_of(z[cut:], y[cut:], 4), torch.arange(4))
    assert_same(merged, whole)
    merged.remove(z[:cut], y[:cut])
    assert_same(merged, statistics_of(z[cut:], y[cut:], 4))


def test_merging_renames_classes() -> None:
    z, y = examples(20, dim=3, classes=2)
    own = statistics_of(z[:10], 1 - y[:10], 2)
    own.merge(statistics_of(z[10:], y[10:], 2), torch.tensor([1, 0]))
    assert_same(own, statistics_of(z, 1 - y, 2))


def test_single_precision_far_from_the_origin_is_as_good_as_double() -> None:
    """Sums of raw second moments would lose every digit here."""
    z, y = examples(3000, dim=6, classes=3)
    z = (z + 1000).float().double()
    query = z[:200] + 0.1
    logits = []
    for dtype in (torch.float32, torch.float64):
        statistics = statistics_of(z[:0], y[:0], 3, dtype)
        for each, labels in zip(z.split(7), y.split(7), strict=True):
            statistics.add(each.to(dtype), labels)
        logits.append(ClassScores(statistics, 20.0).plug_in(query))
    probabilities = [each.softmax(dim=1) for each in logits]
    torch.testing.assert_close(*probabilities, rtol=0, atol=2e-3)
    raw = z.float().T @ z.float() - 3000 * torch.outer(z.mean(0).float(), z.mean(0).float())
    assert (raw.double() - scatter_of(z, torch.zeros_like(y))).abs().max() > 1  # it matters here


def test_the_predictive_is_scipys_multivariate_t() -> None:
    z, y = examples(40, dim=5, classes=3)
    statistics = statistics_of(z, y, 3)
    scores = ClassScores(statistics, 4.0, inverse=True)
    ridge, strength, freedom = prior_beside(statistics, 4.0)
    degrees = strength + freedom + 2
    psi = scatter_of(z, y) + ridge * torch.eye(5, dtype=torch.float64)
    query = z[:7] + 1
    for label in range(3):
        own = z[y == label]
        shape = psi * (1 + 1 / len(own)) / degrees
        expected = multivariate_t.logpdf(query, own.mean(dim=0), shape, df=degrees)
        np.testing.assert_allclose(scores.student_t(query)[:, label], expected, rtol=1e-10)


def test_the_predictive_is_the_integral_over_mean_and_variance() -> None:
    """In one dimension: the normal likelihood under the posterior of mean and variance."""
    z = torch.tensor([[0.3], [1.1], [0.7], [4.0], [5.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 0, 1, 1])
    statistics = statistics_of(z, y, 2)
    ridge, strength, freedom = prior_beside(statistics, 1.3)
    psi, nu = float(scatter_of(z, y)) + ridge, strength + 2 + freedom  # inverse-Wishart, D = 1

    def density(query: float, mean: float, count: int) -> float:
        def integrand(variance: float) -> float:
            log_prior = (
                nu / 2 * math.log(psi / 2)
                - math.lgamma(nu / 2)
                - (nu / 2 + 1) * math.log(variance)
                - psi / (2 * variance)
            )
            spread = variance * (1 + 1 / count)  # the mean is integrated out by a convolution
            gap = (query - mean) ** 2 / (2 * spread)
            return math.exp(log_prior - gap) / math.sqrt(2 * math.pi * spread)

        return integrate.quad(integrand, 0, np.inf, epsabs=1e-12)[0]

    scores = ClassScores(statistics, 1.3, inverse=True)
    for query in (-0.5, 1.0, 3.7):
        found = scores.student_t(torch.tensor([[query]], dtype=torch.float64)).exp()[0]
        expected = [density(query, float(z[y == c].mean()), int((y == c).sum())) for c in (0, 1)]
        np.testing.assert_allclose(found, expected, rtol=1e-7)


def test_the_plug_in_is_a_normal_density_with_the_posterior_mean() -> None:
    z, y = examples(60, dim=4, classes=3)
    statistics = statistics_of(z, y, 3)
    ridge, strength, freedom = prior_beside(statistics, 14.0)
    sigma = (scatter_of(z, y) + ridge * torch.eye(4, dtype=torch.float64)) / (strength + freedom)
    query = z[:9] - 1
    expected = torch.tensor(
        np.stack(
            [multivariate_normal.logpdf(query, z[y == c].mean(dim=0), sigma) for c in range(3)],
            axis=1,
        )
    )
    found = ClassScores(statistics, 14.0).plug_in(query)
    torch.testing.assert_close(found.log_softmax(dim=1), expected.log_softmax(dim=1))
    # The ridge is that of 14 examples of the mean variance, but for its rounding.
    assert (strength, freedom) == (14, 57)
    assert ridge == pytest.approx(14 * float(scatter_of(z, y).trace()) / 4 / 57, rel=0.1)


@pytest.mark.parametrize("wrong", ["total covariance", "no bias", "count divided twice"])
def test_wrong_variants_are_told_apart(wrong: str) -> None:
    """Each is a bug seen in public code."""
    z, y = examples(60, dim=4, classes=3)
    statistics = statistics_of(z, y, 3)
    scores = ClassScores(statistics, 14.0)
    right = scores.plug_in(z).log_softmax(dim=1)
    if wrong == "total covariance":
        everything = statistics_of(z, torch.zeros_like(y), 1)
        assert everything.scatter is not None
        assert statistics.scatter is not None
        statistics.scatter.values.copy_(everything.scatter.values)
        scores = ClassScores(statistics, 14.0)
    elif wrong == "no bias":
        scores.square = torch.zeros_like(scores.square)
    else:
        scores.precision *= scores.prior.freedom
    assert (scores.plug_in(z).log_softmax(dim=1) - right).abs().max() > 0.1


@given(st.integers(0, 1000))
@settings(max_examples=20)
def test_the_marginal_likelihood_is_the_product_of_predictives(seed: int) -> None:
    z, y = examples(14, dim=3, classes=3, seed=seed)
    strength, variance, dim = 4.0, 1.5, 3
    statistics, total = statistics_of(z[:0], y[:0], 3), 0.0
    for query, label in zip(z, y.tolist(), strict=True):
        count = float(statistics.count[label])
        if count > 0:
            assert statistics.scatter is not None
            seen = int((statistics.count > 0).sum())
            degrees = strength + float(statistics.count.sum()) - seen + 2
            psi = statistics.scatter.dense() + strength * variance * torch.eye(
                dim, dtype=torch.float64
            )
            shape = psi * (1 + 1 / count) / degrees
            total += multivariate_t.logpdf(query, statistics.mean[label], shape, df=degrees)
        statistics.add(query[None], torch.tensor([label]))
    eigenvalues = torch.linalg.eigvalsh(scatter_of(z, y))
    found = log_marginal_likelihood(eigenvalues, statistics.count, strength, variance)
    assert found == pytest.approx(total, rel=1e-9)


def test_the_likeliest_strength_follows_the_data() -> None:
    """For isotropic data the prior is worth much, for strongly correlated ones little."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(300) % 3
    round_data = torch.randn(300, 20, generator=generator, dtype=torch.float64)
    stretched = round_data * torch.logspace(-2, 2, 20, dtype=torch.float64)
    much, little = (likeliest_strength(statistics_of(z, y, 3)) for z in (round_data, stretched))
    assert much > 300 > 20 > little
    statistics = statistics_of(round_data, y, 3)
    assert statistics.scatter is not None
    eigenvalues = torch.linalg.eigvalsh(statistics.scatter.dense())
    variance = float(statistics.trace) / 20 / degrees_of_freedom(statistics)

    def likelihood(strength: float) -> float:
        return log_marginal_likelihood(eigenvalues, statistics.count, strength, variance)

    assert likelihood(much) >= max(likelihood(nu) for nu in (1, 10, 100, 1000))


@pytest.mark.slow
@pytest.mark.parametrize("student_t", [False, True])
@pytest.mark.parametrize("half_life", [math.inf, 300.0])
def test_following_is_solving_afresh(student_t: bool, half_life: float) -> None:
    z, y = examples(2500, dim=24, classes=4)
    query = z[:5] + 0.3
    fresh, follows = (
        RunningClassifier(
            statistics_of(z[:0], y[:0], 4), 20.0, student_t=student_t, half_life=half_life
        )
        for _ in range(2)
    )
    follows.follow = True
    updates = 0
    for step, (each, labels) in enumerate(zip(z.split(2), y.split(2), strict=True)):
        fresh.add(each, labels)
        follows.add(each, labels)
        updates += follows._scores is not None
        found = follows.log_joint(query).log_softmax(dim=1)
        if step % 25 == 0:
            fresh.changed()
            expected = fresh.log_joint(query).log_softmax(dim=1)
            torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-8)
    assert updates > (600 if half_life == math.inf else 300)  # most steps solve nothing afresh


@pytest.mark.slow
def test_following_over_ten_thousand_steps() -> None:
    """Single examples and batches of three in turn."""
    batches = [1, 3] * 5_000
    z, y = examples(sum(batches), dim=32, classes=5)
    follows = RunningClassifier(statistics_of(z[:0], y[:0], 5), 20.0)
    follows.follow = True
    for each, labels in zip(z.split(batches), y.split(batches), strict=True):
        follows.add(each, labels)
        follows.scores()
    fresh = ClassScores(statistics_of(z, y, 5), 20.0)
    found = follows.log_joint(z[:50]).log_softmax(dim=1)
    torch.testing.assert_close(
        found, fresh.plug_in(z[:50]).log_softmax(dim=1), rtol=1e-6, atol=1e-7
    )


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_a_class_that_appears_while_following(order: tuple[int, ...]) -> None:
    z, y = examples(90, dim=12, classes=3)
    in_order = torch.cat([(y == c).nonzero().flatten() for c in order])
    column = torch.tensor(order).argsort()[y]  # columns in order of appearance
    follows = RunningClassifier(statistics_of(z[:0], y[:0], 0), 5.0)
    follows.follow = True
    for i in in_order.tolist():
        follows.statistics.grow(int(column[i]) + 1)
        follows.add(z[i : i + 1], column[i : i + 1])
        found = follows.log_joint(z[:4])
        known = follows.statistics.count > 0
        expected = ClassScores(follows.statistics, 5.0).plug_in(z[:4])
        torch.testing.assert_close(
            found[:, known].log_softmax(dim=1), expected[:, known].log_softmax(dim=1)
        )


def test_a_half_life_halves() -> None:
    z, y = examples(41, dim=3, classes=1)
    fading = RunningClassifier(statistics_of(z[:0], y[:0], 1), 5.0, half_life=8.0)
    for each in z.split(1):
        fading.add(each, torch.tensor([0]))
    weight = 2.0 ** (-(40 - torch.arange(41, dtype=torch.float64)) / 8)
    mean = (weight[:, None] * z).sum(dim=0) / weight.sum()
    spread = (weight[:, None] * (z - mean)).T @ (z - mean)
    torch.testing.assert_close(fading.statistics.mean[0], mean)
    assert fading.statistics.scatter is not None
    torch.testing.assert_close(fading.statistics.scatter.dense() / fading.unit, spread)
    assert float(fading.statistics.count[0]) / fading.unit == pytest.approx(float(weight.sum()))


def test_a_half_life_never_overflows() -> None:
    z, y = examples(3000, dim=3, classes=2)
    fading = RunningClassifier(statistics_of(z[:0], y[:0], 2, torch.float32), 5.0, half_life=2.0)
    for each, labels in zip(z.split(3), y.split(3), strict=True):
        fading.add(each.float(), labels)
        assert 1 <= fading.unit <= 2.0**20
    assert torch.isfinite(fading.log_joint(z)).all()


def test_a_batch_of_many_half_lives() -> None:
    z, y = examples(5000, dim=3, classes=2)
    fading = RunningClassifier(statistics_of(z[:0], y[:0], 2), 5.0, half_life=0.5)
    for each, labels in zip(z.split(2500), y.split(2500), strict=True):
        fading.add(each, labels)
    last = statistics_of(z[2500:], y[2500:], 2)  # nothing else is left
    torch.testing.assert_close(fading.statistics.mean, last.mean)
    assert torch.isfinite(fading.log_joint(z[:9])).all()


@pytest.mark.parametrize("student_t", [False, True])
def test_more_features_than_examples_one_example_each_constant_features(student_t: bool) -> None:
    z, y = examples(6, dim=40, classes=3)
    z[:, 7] = 3.0
    few = ClassScores(statistics_of(z, y, 3), 2.0, inverse=True)
    assert torch.isfinite(few.log_joint(z, student_t=student_t)).all()
    single = torch.tensor([0, 1, 2])
    one_each = ClassScores(statistics_of(z[:3], single, 3), 2.0, inverse=True)
    nearest = torch.cdist(z, z[:3]).argmin(dim=1)  # nothing is known of the spread
    assert torch.equal(one_each.log_joint(z, student_t=student_t).argmax(dim=1), nearest)


def test_without_a_matrix_the_nearest_mean_wins() -> None:
    z, y = examples(50, dim=5, classes=4)
    statistics = ClassStatistics(5, torch.float64, CPU, matrix=False)
    statistics.grow(4)
    statistics.add(z, y)
    means = torch.stack([z[y == c].mean(dim=0) for c in range(4)])
    found = ClassScores(statistics, None).plug_in(z).argmax(dim=1)
    assert torch.equal(found, torch.cdist(z, means).argmin(dim=1))
    assert statistics.scatter is None


def test_ten_thousand_classes() -> None:
    generator = torch.Generator().manual_seed(0)
    means = 10 * torch.randn(10_000, 16, generator=generator)
    statistics = ClassStatistics(16, torch.float32, CPU)
    statistics.grow(10_000)
    for _ in range(3):
        noise = torch.randn(10_000, 16, generator=generator)
        statistics.add(means + noise, torch.arange(10_000))
    found = ClassScores(statistics, 20.0).plug_in(means[:500]).argmax(dim=1)
    assert (found == torch.arange(500)).double().mean() > 0.99
