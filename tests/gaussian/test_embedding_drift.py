"""Estimates of present embeddings: the formulas of the module's text, by enumeration and chance."""

import itertools

import pytest
import torch

from deepccg.gaussian import (
    Posterior,
    class_posterior,
    estimate_embeddings,
    inflate_variance,
    log_predictive_density,
    means_of_others,
    squared_distances,
)

M, D = 6, 3


def population(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Caches, and where the embeddings really are: a shift, a turn and noise with outliers."""
    generator = torch.Generator().manual_seed(seed)
    cached = torch.randn(M, D, generator=generator, dtype=torch.float64)
    turn = torch.randn(D, D, generator=generator, dtype=torch.float64)
    noise = torch.randn(M, D, generator=generator, dtype=torch.float64)
    noise[0] *= 20
    return cached, cached @ turn + 3 + noise


def estimate(cached, now, sample):
    sampled = torch.zeros(len(cached), dtype=torch.bool)
    sampled[list(sample)] = True
    y = torch.zeros(len(cached), dtype=torch.int64)
    return estimate_embeddings(cached, y, now[sampled], sampled, 1)


@pytest.mark.parametrize("s", [1, 2, 3, 4])
def test_every_sample_in_turn_gives_the_true_mean_and_the_stated_error(s):
    """All samples of s, equally likely: no chance is involved."""
    cached, now = population()
    means, errors, estimated = [], [], []
    for sample in itertools.combinations(range(M), s):
        found = estimate(cached, now, sample)
        means.append(found.z.mean(dim=0))
        errors.append((means[-1] - now.mean(dim=0)).square().sum())
        estimated.append(found.error[0])
    torch.testing.assert_close(torch.stack(means).mean(dim=0), now.mean(dim=0))
    difference = now - cached
    spread = (difference - difference.mean(dim=0)).square().sum() / (M - 1)
    expected = (1 / s - 1 / M) * spread
    torch.testing.assert_close(torch.stack(errors).mean(), expected)
    if s > 1:  # the estimated error is right on average
        torch.testing.assert_close(torch.stack(estimated).mean(), expected)


def test_reembedded_examples_keep_their_embedding():
    cached, now = population()
    found = estimate(cached, now, sample=(2, 5))
    assert torch.equal(found.z[[2, 5]], now[[2, 5]])
    torch.testing.assert_close(found.z[3] - cached[3], (now - cached)[[2, 5]].mean(dim=0))
    everything = estimate(cached, now, sample=range(M))
    assert torch.equal(everything.z, now)
    assert everything.error.item() == 0


def test_a_common_shift_is_followed_without_error_by_one_example():
    cached, _ = population()
    now = cached + torch.tensor([5.0, -7.0, 100.0])
    torch.testing.assert_close(estimate(cached, now, sample=(4,)).z, now)


Y = torch.tensor([4, 2, 4, 2, 2, 4, 2, 4])


def two_classes(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Caches that have little to do with where the embeddings are: a slope near one half."""
    generator = torch.Generator().manual_seed(seed)
    cached = torch.randn(len(Y), D, generator=generator, dtype=torch.float64)
    noise = torch.randn(len(Y), D, generator=generator, dtype=torch.float64)
    return cached, 0.5 * cached + 0.5 * noise + Y[:, None]


def both(cached, now, *samples):
    sampled = torch.zeros(len(Y), dtype=torch.bool)
    sampled[[i for sample in samples for i in sample]] = True
    return estimate_embeddings(cached, Y, now[sampled], sampled, 6)


def samples_of(column: int, s: int):
    return itertools.combinations((column == Y).nonzero().flatten().tolist(), s)


@pytest.mark.parametrize("s", [1, 2, 3])
def test_slopes_leave_the_means_unbiased(s):
    """Every pair of samples in turn: a class's slope does not depend on its own."""
    cached, now = two_classes()
    found = [
        class_posterior(both(cached, now, one, other).z, Y, 6).mean
        for one in samples_of(2, s)
        for other in samples_of(4, s)
    ]
    truth = class_posterior(now, Y, 6).mean
    torch.testing.assert_close(torch.stack(found).mean(dim=0), truth)


def test_slopes_are_those_of_the_other_classes():
    """Written out for one pair of samples."""
    cached, now = two_classes()
    one, other = [1, 3, 4], [0, 5, 7]
    found = both(cached, now, one, other)
    for own, others, left in ((one, other, 6), (other, one, 2)):
        before = cached[others] - cached[others].mean(dim=0)
        after = now[others] - now[others].mean(dim=0)
        slope = ((before * after).sum() / before.square().sum()).clamp(0, 1)
        expected = now[own].mean(dim=0) + slope * (cached[left] - cached[own].mean(dim=0))
        torch.testing.assert_close(found.z[left], expected)


def without(cached, now, i, *samples):
    """The mean of the class of i, estimated as if i had never been stored."""
    kept = torch.arange(len(Y)) != i
    sampled = torch.zeros(len(Y), dtype=torch.bool)
    sampled[[j for sample in samples for j in sample if j != i]] = True
    found = estimate_embeddings(cached[kept], Y[kept], now[sampled], sampled[kept], 6)
    return class_posterior(found.z, Y[kept], 6).mean[Y[i]], found.spread


@pytest.mark.parametrize(("s", "other"), [(2, 3), (3, 2), (4, 4)])
def test_leaving_one_out_is_estimating_without_it(s, other):
    """Every pair of samples, every example of both; plain subtraction is told apart."""
    cached, now = two_classes()
    subtraction_differs = False
    for one in samples_of(2, s):
        for two in samples_of(4, other):
            found = both(cached, now, one, two)
            sampled = torch.zeros(len(Y), dtype=torch.bool)
            sampled[[*one, *two]] = True
            others = means_of_others(found, Y, sampled, 6)
            posterior = class_posterior(found.z, Y, 6)
            for place, i in enumerate(sampled.nonzero().flatten().tolist()):
                expected, _ = without(cached, now, i, one, two)
                torch.testing.assert_close(others.mean[place], expected)
                m, size = 4, s if Y[i] == 2 else other
                assert others.count[place] == m - 1
                wanted = (1 / (size - 1) - 1 / (m - 1)) * found.spread
                torch.testing.assert_close(others.error[place], wanted)
                subtracted = (m * posterior.mean[Y[i]] - now[i]) / (m - 1)
                subtraction_differs |= not torch.allclose(subtracted, expected)
    assert subtraction_differs == (s < 4 or other < 4)


def test_an_example_has_no_part_in_the_mean_of_the_others():
    """Neither its value nor its gradient; those of the rest of the sample have equal shares."""
    cached, now = two_classes()
    sampled = torch.zeros(len(Y), dtype=torch.bool)
    sampled[[1, 3, 4, 0, 5]] = True
    new = now[sampled].requires_grad_()
    others = means_of_others(estimate_embeddings(cached, Y, new, sampled, 6), Y, sampled, 6)
    own = Y[sampled]
    for i in range(len(new)):
        (gradient,) = torch.autograd.grad(others.mean[i].sum(), new, retain_graph=True)
        friends = (own == own[i]) & (torch.arange(len(new)) != i)
        expected = friends[:, None] / friends.sum() * torch.ones(D, dtype=torch.float64)
        torch.testing.assert_close(gradient, expected)


def test_one_of_a_class_has_no_others():
    y, sampled = torch.tensor([0, 0, 1]), torch.tensor([True, False, True])
    z = torch.randn(3, D, generator=torch.Generator().manual_seed(0))
    others = means_of_others(estimate_embeddings(z, y, z[sampled], sampled, 2), y, sampled, 2)
    assert others.count.tolist() == [0, 0]
    assert bool(others.mean.isfinite().all())


def test_stale_caches_are_hardly_worse_than_none():
    """Caches without information: moving them would double the error of the sample alone."""
    generator = torch.Generator().manual_seed(0)
    classes, m, s = 40, 10, 2
    y = torch.arange(classes).repeat_interleave(m)
    error = {"estimated": 0.0, "alone": 0.0}
    for _ in range(20):
        cached, now = torch.randn(2, len(y), 20, generator=generator)
        key = torch.rand(classes, m, generator=generator)
        sampled = (key.argsort(dim=1).argsort(dim=1) < s).flatten()
        truth = class_posterior(now, y, classes).mean
        found = estimate_embeddings(cached, y, now[sampled], sampled, classes)
        alone = class_posterior(now[sampled], y[sampled], classes).mean
        miss = class_posterior(found.z, y, classes).mean - truth
        error["estimated"] += miss.square().sum(dim=1).mean().item() / 20
        error["alone"] += (alone - truth).square().sum(dim=1).mean().item() / 20
    assert error["alone"] == pytest.approx(20 * (1 / s - 1 / m), rel=0.1)
    assert error["estimated"] < 1.03 * error["alone"]


def test_a_shift_of_one_class_moves_no_other():
    cached, now = two_classes()
    before = both(cached, now, [1, 3], [0, 5])
    after = both(cached, now + 7.0 * (Y == 4)[:, None], [1, 3], [0, 5])
    torch.testing.assert_close(after.z, before.z + 7.0 * (Y == 4)[:, None])
    torch.testing.assert_close(after.error, before.error)
    assert (before.error > 0).tolist() == [False, False, True, False, True, False]


def network_gradient(weight, x, cached, sample) -> torch.Tensor:
    """Of the squared length of the estimated mean's value, as the loss sees it, in the weights."""
    sampled = torch.zeros(M, dtype=torch.bool)
    sampled[list(sample)] = True
    weight = weight.clone().requires_grad_()
    y = torch.zeros(M, dtype=torch.int64)
    found = estimate_embeddings(cached, y, torch.tanh(x[sampled] @ weight), sampled, 1)
    class_posterior(found.z, y, 1).mean.sum().backward()
    return weight.grad


@pytest.mark.parametrize("s", [1, 2, 3])
def test_the_gradient_of_the_mean_is_on_average_that_of_the_mean_of_all(s):
    """Every sample in turn, through a network; each sampled with its own 1/m would be too short."""
    cached, _ = population()
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(M, 4, generator=generator, dtype=torch.float64)
    weight = torch.randn(4, D, generator=generator, dtype=torch.float64)
    samples = list(itertools.combinations(range(M), s))
    found = sum(network_gradient(weight, x, cached, sample) for sample in samples) / len(samples)
    exact = network_gradient(weight, x, cached, range(M))
    torch.testing.assert_close(found, exact)
    own_share = s / M * exact
    assert not torch.allclose(found, own_share, rtol=0.1)


def test_caches_of_zeros_leave_the_sample_alone():
    """Nothing cached yet: all of a class are taken to be where its sample is."""
    _, now = population()
    found = estimate(torch.zeros(M, D, dtype=torch.float64), now, sample=(1, 4))
    centre = now[[1, 4]].mean(dim=0)
    torch.testing.assert_close(found.z[[0, 2, 3, 5]], centre.expand(4, D))
    spread = (now[[1, 4]] - centre).square().sum()
    torch.testing.assert_close(found.error[0], (1 / 2 - 1 / M) * spread)


@pytest.mark.parametrize("s", [2, 3])
def test_what_estimates_lack_in_spread_is_told(s):
    """From caches that say nothing: every sample in turn, against all embeddings themselves."""
    _, now = population()
    deviations, told = [], []
    for sample in itertools.combinations(range(M), s):
        found = estimate(torch.zeros(M, D, dtype=torch.float64), now, sample)
        deviations.append((found.z - found.z.mean(dim=0)).square().sum())
        told.append(deviations[-1] + found.missing)
    whole = (now - now.mean(dim=0)).square().sum()
    torch.testing.assert_close(torch.stack(told).mean(), whole)
    assert torch.stack(deviations).mean() < 0.5 * whole  # clusters that are not there
    assert float(estimate(now - 3, now, (1, 4)).missing) < 1e-20  # nothing drifted but the mean


def follow(m: int, s: int, uses: int, classes: int = 2000):
    """Squared errors of class means under drift of unit variance nu, with caches moved.

    Independent of the library: written out over ``classes`` copies of one class at once.
    """
    generator = torch.Generator().manual_seed(1)
    z = torch.zeros(classes, m)
    cached = z.clone()
    errors = []
    for _ in range(uses):
        z = z + 2 + torch.randn(z.shape, generator=generator)  # one dimension, nu = 1
        order = torch.rand(z.shape, generator=generator)
        sampled = order.argsort(dim=1).argsort(dim=1) < s
        shift = ((z - cached) * sampled).sum(dim=1, keepdim=True) / s
        cached = torch.where(sampled, z, cached + shift)
        errors.append((cached.mean(dim=1) - z.mean(dim=1)).square().mean().item())
    return errors


@pytest.mark.parametrize(("m", "s"), [(10, 2), (10, 3), (30, 5)])
def test_errors_settle_where_the_recursion_says(m, s):
    errors = follow(m, s, uses=90 if m == 30 else 60)
    fresh = 1 / s - 1 / m
    assert errors[0] == pytest.approx(fresh, rel=0.1)
    keep = 1 - (s - 1) / (m - 1)
    for use in (1, 3):
        spread = sum(keep**j for j in range(use + 1))
        assert errors[use] == pytest.approx(fresh * spread, rel=0.1)
    stationary = fresh * (m - 1) / (s - 1)
    assert sum(errors[-10:]) / 10 == pytest.approx(stationary, rel=0.1)


def test_one_example_a_use_never_settles():
    m, uses = 10, 60
    assert follow(m, 1, uses)[-1] == pytest.approx((1 - 1 / m) * uses, rel=0.15)


@pytest.mark.parametrize("error", [0.0, 0.05, 3.0])
def test_inflated_variance_widens_the_predictive(error):
    """N(mean, (1 + 1/n + e) I), by the library's counts and by the density written out."""
    cached, _ = population()
    mean, count = cached[:2], torch.tensor([4.0, 9.0], dtype=torch.float64)
    inflated = inflate_variance(Posterior(mean, count), torch.full_like(count, error))
    mask = torch.ones(M, 2, dtype=torch.bool)
    distance = squared_distances(cached, inflated.mean)
    found = log_predictive_density(distance, inflated.count, mask, D, "per-class")
    spread = (1 + 1 / count + error).sqrt()
    normal = torch.distributions.Normal(mean, spread[:, None])
    torch.testing.assert_close(found, normal.log_prob(cached[:, None]).sum(dim=2))
