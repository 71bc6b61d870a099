"""Estimate the present embeddings of stored examples by re-embedding a few of them.

A class has m stored examples with embeddings c_i from earlier networks. The present z_i are known
for a sample S of s of them, drawn uniformly at random. With means over S marked by a bar and a
slope b, the estimates are

    zhat_i = z_i for i in S,    zhat_i = zbar + b (c_i - cbar) for the rest:

for b = 1 the caches are moved by the mean difference in the sample, for b = 0 they are ignored.

**Unbiased for any drift.** The mean of zhat is zbar + b (mean c - cbar). Over the draw of S, zbar
and cbar have the means of z and c as expectations, so for every b that S does not decide the
expectation is the mean of z. Nothing is assumed of how the network moved, nor of the caches. The
slope of a class is fitted to the samples of the other classes, which are drawn independently of its
own.

**So is its gradient.** Caches and slope are constants, so the gradient of the mean is that of zbar,
grad z_i / s for each of the sample; over the draw of S that of the mean of all m, though s of them
are passed through the network. Counting each of the sample with its own 1/m instead would shorten
the gradient by s/m.

**Its error** is that of the mean over S of d_i = z_i - b c_i, without replacement:

    E |mean zhat - mean z|^2 = (1/s - 1/m) V,    V = sum |d_i - mean d|^2 / (m-1).

From caches of one and the same network, b = 1 and z_i = c_i + shift + noise of total variance nu,
E V = nu: the paper's appendix on re-embedding few examples.

**Estimates lie too near their mean.** With the best slope their residuals z_i - zhat_i are
uncorrelated with them and have the spread V, so the squared deviations of the m - s estimated lack
(m - s) V in sum. For b = 0, where they all lie at zbar, sum_S |z_i - zbar|^2 + (m - s) V_S is
(m - 1) V_S. What measures the within-class spread has to add it, or it would see clusters that are
not there.

**Caches age.** Let estimates take the place of caches. The residuals r_i = z_i - zhat_i are 0 on S
and d_i - dbar elsewhere, their mean is r = mean d - dbar, and

    (m-1) V_after = sum_rest |d_i - dbar|^2 - m |r|^2 = (m-1) V - (s-1) V_S,

because sum_all |d_i - dbar|^2 = (m-1) V + m |r|^2 and its part on S is (s-1) V_S. As E V_S = V, a
use and the drift nu until the next one, at b = 1, make of the spread

    V <- V (1 - (s-1)/(m-1)) + nu,

with the fixed point nu (m-1)/(s-1) and so the stationary error nu (1/s - 1/m) (m-1)/(s-1): for
s = 1 there is none, V grows by nu with every use. The slope bounds it: the best b has a V at most
that of b = 0, the within-class spread of z itself, so old caches are never worse than none.

**Each of the sample left out.** Without i the sample is a random one of the class without i, so the
mean of the others is estimated in the same way, from S and M without i: unbiased, with the error
(1/(s-1) - 1/(m-1)) V. The m - s that are not of the sample move by the residual r_i of i, over
s - 1, so with mean the mean of all zhat

    mean_without_i = (m mean - z_i - (m-s)/(s-1) r_i) / (m-1),    r_i = z_i - zbar - b (c_i - cbar).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from deepccg.gaussian.posterior import class_posterior


@dataclass(frozen=True)
class EmbeddingEstimate:
    """Estimates of present embeddings.

    Args:
        z: ``[M, D]``; where an example was re-embedded, that embedding itself.
        error: Estimated squared error of each class's mean, ``[C]``, summed over dimensions.
        missing: Squared deviations from class means that ``z`` lacks in sum, a number.
        residual: What its cache does not say of each example that was re-embedded, ``[S, D]``.
        spread: Estimated V, a number.
    """

    z: Tensor
    error: Tensor
    missing: Tensor
    residual: Tensor
    spread: Tensor


@dataclass(frozen=True)
class MeansOfOthers:
    """Of each re-embedded example, the mean of its class without it.

    Args:
        mean: ``[S, D]``.
        count: How many examples it rests on, ``[S]``; 0 where no other was re-embedded.
        error: Its estimated squared error, summed over dimensions, ``[S]``.
    """

    mean: Tensor
    count: Tensor
    error: Tensor


def estimate_embeddings(
    cached: Tensor, y: Tensor, new: Tensor, sampled: Tensor, n_classes: int
) -> EmbeddingEstimate:
    """Move each class's cached embeddings by its sample, with the slope fitted to the others.

    The spread V is estimated from the samples of all classes together: the two or three of one
    class alone say little.

    Args:
        cached: Embeddings from earlier networks, ``[M, D]``.
        y: Class columns ``[M]``.
        new: Present embeddings of the ``sampled`` ones, in their order, ``[S, D]``. A gradient
            passes through them to the means.
        sampled: Which were re-embedded, ``[M]``: of every class in ``y`` at least one, at random.
        n_classes: How many classes there are.

    >>> cached, new = torch.tensor([[0.0], [2.0], [4.0]]), torch.tensor([[1.0], [5.0]])
    >>> sampled = torch.tensor([True, False, True])
    >>> estimate_embeddings(cached, torch.zeros(3, dtype=torch.int64), new, sampled, 1).z
    tensor([[1.],
            [3.],
            [5.]])
    """
    own = y[sampled]
    size = torch.bincount(own, minlength=n_classes).to(new.dtype)
    centre = _class_means(new, own, size)
    old_centre = _class_means(cached[sampled], own, size)
    deviation, old_deviation = new - centre[own], cached[sampled] - old_centre[own]
    slope = _slopes_of_the_others(deviation.detach(), old_deviation, own, n_classes)[:, None]
    residual = deviation - slope[own] * old_deviation
    with torch.no_grad():
        spread = residual.square().sum() / (size - 1).clamp(min=0).sum().clamp(min=1)
        stored = torch.bincount(y, minlength=n_classes).to(new.dtype)
        error = (1 / size.clamp(min=1) - 1 / stored.clamp(min=1)) * spread
        missing = (len(y) - len(own)) * spread
    estimate = centre[y] + slope[y] * (cached - old_centre[y])
    z = estimate.masked_scatter(sampled[:, None].expand_as(cached), new)
    return EmbeddingEstimate(z, error, missing, residual, spread)


def means_of_others(
    estimate: EmbeddingEstimate, y: Tensor, sampled: Tensor, n_classes: int
) -> MeansOfOthers:
    """Leave each re-embedded example out of its class's mean; arguments as above.

    >>> y, sampled = torch.zeros(2, dtype=torch.int64), torch.tensor([True, True])
    >>> known = torch.tensor([[1.0], [5.0]])
    >>> means_of_others(estimate_embeddings(known, y, known, sampled, 1), y, sampled, 1).mean
    tensor([[5.],
            [1.]])
    """
    posterior, own = class_posterior(estimate.z, y, n_classes), y[sampled]
    stored = posterior.count[own]
    size = torch.bincount(own, minlength=n_classes).to(stored.dtype)[own]
    others, rest = size - 1, stored - 1
    alone = others == 0
    share = ((stored - size) / others.clamp(min=1))[:, None]
    total = stored[:, None] * posterior.mean[own] - estimate.z[sampled] - share * estimate.residual
    mean = total / rest.clamp(min=1)[:, None]
    error = (1 / others.clamp(min=1) - 1 / rest.clamp(min=1)) * estimate.spread
    return MeansOfOthers(mean, rest.masked_fill(alone, 0), error)


def _class_means(z: Tensor, y: Tensor, size: Tensor) -> Tensor:
    """Means ``[C, D]`` of ``z [n, D]``, where each class has ``size [C]``."""
    total = z.new_zeros(len(size), z.shape[1]).index_add(0, y, z)
    return total / size.clamp(min=1)[:, None]


def _slopes_of_the_others(now: Tensor, before: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """For each class the b in [0, 1] of least sum |now - b before|^2 over all others, ``[C]``.

    1 where the others do not determine it: there are none, or one example of each.
    """
    products = torch.stack([(now * before).sum(dim=1), before.square().sum(dim=1)])
    by_class = products.new_zeros(2, n_classes).index_add(1, y, products)
    product, square = by_class.sum(dim=1, keepdim=True) - by_class
    determined = square > 1e-6 * by_class[1].sum()  # more than the rounding of the difference
    return torch.where(determined, product / torch.where(determined, square, 1.0), 1.0).clamp(0, 1)
