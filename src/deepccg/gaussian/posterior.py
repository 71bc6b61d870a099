"""Posterior over class means, posterior predictive, and the loss they give.

The model (Eqs. 1-3): y | t uniform on the task's classes, z | y ~ N(mu_y, I), mu_y ~ N(0, aI) with
a -> infinity. Everything below is its closed form.
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

Variance = Literal["shared", "per-class"]  # one posterior variance for all classes, or one each

SMALLEST_SPREAD = 0.01  # of the within-class covariance, compared with that of all examples


@dataclass(frozen=True)
class Posterior:
    """N(mean_c, I / count_c) for each class c (Eq. 7); ``count_c = 0`` is the flat prior.

    Args:
        mean: ``[C, D]``, zero where there is no evidence.
        count: ``[C]``, how many examples each mean rests on, as floats.
    """

    mean: Tensor
    count: Tensor


def class_posterior(z: Tensor, y: Tensor, n_classes: int) -> Posterior:
    """The posterior over each class's mean given embeddings ``z [M, D]`` of classes ``y [M]``.

    >>> z = torch.tensor([[0.0, 0.0], [2.0, 4.0], [5.0, 5.0]])
    >>> class_posterior(z, torch.tensor([0, 0, 2]), 3)
    Posterior(mean=tensor([[1., 2.],
            [0., 0.],
            [5., 5.]]), count=tensor([2., 0., 1.]))
    """
    count = torch.bincount(y, minlength=n_classes).to(z.dtype)
    total = z.new_zeros(n_classes, z.shape[1]).index_add(0, y, z)
    return Posterior(mean=total / count.clamp(min=1)[:, None], count=count)  # Eq. 7


def inflate_variance(posterior: Posterior, error: Tensor) -> Posterior:
    """The posterior when its means are known up to a further variance ``error [C]`` per dimension.

    N(mean, I/n) with the variance e added is N(mean, I/n') with 1/n' = 1/n + e: the mean is worth
    fewer examples. A class without evidence stays without.

    >>> posterior = Posterior(torch.zeros(2, 1), torch.tensor([4.0, 0.0]))
    >>> inflate_variance(posterior, torch.full((2,), 0.25))
    Posterior(mean=tensor([[0.],
            [0.]]), count=tensor([2., 0.]))
    """
    return Posterior(posterior.mean, posterior.count / (1 + posterior.count * error))


def squared_distances(z: Tensor, mean: Tensor) -> Tensor:
    """``|z_b - mean_c|^2`` as ``[B, C]``.

    By direct subtraction: the expanded form loses all digits when the embeddings lie far from the
    origin compared with their spread.
    """
    return torch.cdist(z, mean, compute_mode="donot_use_mm_for_euclid_dist").square()


def leave_one_out_distances(z: Tensor, y: Tensor, n_classes: int) -> tuple[Tensor, Tensor]:
    """Distances of a batch to its own class means, each example left out of its own class's mean.

    Means are constants: no gradient flows through them.

    Returns:
        Squared distances ``[B, C]`` and the counts ``[B, C]`` that the means rest on.
    """
    fixed = z.detach()
    batch = class_posterior(fixed, y, n_classes)
    rows = torch.arange(len(y), device=z.device)
    count = batch.count.expand(len(y), n_classes).clone()
    count[rows, y] -= 1
    own_total = batch.mean[y] * batch.count[y, None] - fixed
    own_mean = own_total / count[rows, y].clamp(min=1)[:, None]
    distance = squared_distances(z, batch.mean)
    own = (z - own_mean).square().sum(dim=1)
    return distance.scatter(1, y[:, None], own[:, None]), count


def distances_filled_from_batch(
    z: Tensor, y: Tensor, posterior: Posterior
) -> tuple[Tensor, Tensor]:
    """Distances of ``z [B + R, D]`` to class means; a batch ``y [B]`` gives those still unknown.

    Returns:
        Squared distances ``[B + R, C]`` and the counts ``[B + R, C]`` that the means rest on. Where
        the posterior has no examples, those of the batch are ``leave_one_out_distances``.
    """
    distance = squared_distances(z, posterior.mean)
    count = posterior.count.expand_as(distance)
    size, n_classes = len(y), distance.shape[1]
    from_batch, batch_count = leave_one_out_distances(z[:size], y, n_classes)
    absent = count[:size] == 0
    distance = torch.cat([torch.where(absent, from_batch, distance[:size]), distance[size:]])
    count = torch.cat([torch.where(absent, batch_count, count[:size]), count[size:]])
    return distance, count


def log_predictive_density(
    distance: Tensor, count: Tensor, mask: Tensor, dim: int, variance: Variance
) -> Tensor:
    """Log N(z; mean_c, s_c^2 I) (numerator of Eq. 8), -inf where a class is masked or unknown.

    ``per-class`` is the equation as printed, s_c^2 = 1 + 1/n_c with its normaliser. ``shared`` uses
    one value s^2 = 1 + 1/n for all classes of a row, n the mean count of its allowed classes
    (the paper's appendix), so that a class is not punished for having few stored examples:
    in 80 dimensions the normaliser of a class with one example costs it 24 nats against ten.

    Args:
        distance: Squared distances ``[B, C]``.
        count: How many examples each mean is worth, ``[C]`` or ``[B, C]``.
        mask: Allowed classes ``[B, C]``.
        dim: D.
        variance: ``shared`` or ``per-class``.
    """
    known = mask & (count > 0)
    if variance == "shared":
        # A row that knows no class divides nothing by almost nothing; it is masked below.
        total = (known * count).sum(dim=1, keepdim=True).clamp(min=torch.finfo(count.dtype).tiny)
        spread = 1 + known.sum(dim=1, keepdim=True) / total
    else:
        spread = 1 + 1 / torch.where(count > 0, count, 1)  # the others are masked below
    highest = torch.log(2 * math.pi * spread) * (-0.5 * dim)
    return torch.where(known, torch.addcdiv(highest, distance, spread, value=-0.5), -math.inf)


def log_conditional_marginal_likelihood(density: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Log p(y | z, t, D) for each example (Eq. 8, the terms of Eq. 9).

    A term exists where the example's own class has evidence and at least one other allowed class
    does. In the limit of the flat prior the density of a class without evidence tends to zero, so
    such classes leave the denominator; a term without its own class has no finite value.

    Args:
        density: ``log_predictive_density``, ``[B, C]``.
        y: Class columns ``[B]``.

    Returns:
        The terms that exist ``[V]`` and which examples they belong to ``[B]``.
    """
    known = density > -math.inf
    if bool(known.all()) and density.shape[1] >= 2:  # the open task, once every class is known
        valid = torch.ones_like(y, dtype=torch.bool)
    else:
        valid = known.gather(1, y[:, None]).squeeze(1) & (known.sum(dim=1) >= 2)
        if not bool(valid.all()):  # mostly all are, and nothing has to be picked out
            density, y = density[valid], y[valid]
    return -F.cross_entropy(density, y, reduction="none"), valid  # Eq. 8


@torch.no_grad()
def fitted_scale(
    z: Tensor,
    y: Tensor,
    posterior: Posterior,
    deviation: Tensor | None = None,
    missing: Tensor | None = None,
) -> Tensor:
    """The factor that gives the pooled within-class covariance W of ``z`` unit Frobenius norm.

    For z ~ N(mu, W) the squared distance ``|z - mu|^2`` has standard deviation ``sqrt(2) |W|_F``.
    So with ``|W|_F = 1`` the log density of a class's own examples varies by about one nat, however
    many of the dimensions carry that variation. Asking for unit variance in each of D dimensions
    instead makes the classifier sharper by a factor of about D, which training then feeds on.

    W is not taken for smaller than a hundredth of the covariance T of all examples together: stored
    examples that training has drawn onto their class means would otherwise send the scale, and
    with it the next step, out of bounds.

    1 where the spread is unknown: no class has two examples, or they all coincide.

    Args:
        z: Embeddings ``[M, D]``.
        y: Their classes ``[M]``.
        posterior: What follows from them.
        deviation: Of each embedding from its class's mean, ``[M, D]``, if it is known.
        missing: Squared deviations that those of ``z`` lack in sum, because some are estimates;
            taken to be of the same shape.
    """
    if deviation is None:
        deviation = z - posterior.mean.index_select(0, y)
    scatter = deviation.T @ deviation  # (n - C) W
    within, far = (torch.linalg.vector_norm(each).item() for each in (scatter, z))
    counts = posterior.count.tolist()
    # The mean of n equal numbers is rounded by up to n eps: less than that is no spread.
    slip = max(counts) * torch.finfo(z.dtype).eps
    if within <= slip * far * slip * far:  # also where no class has two
        return z.new_ones(())
    if missing is not None:
        within *= 1 + float(missing / scatter.trace())
    within /= len(z) - sum(count > 0 for count in counts)  # |W|_F
    if within < SMALLEST_SPREAD * far * far / (len(z) - 1):  # or else T is small enough, see below
        # All scatter as they do around their class means, and as these do around the mean of all.
        apart = (posterior.mean - z.mean(dim=0)) * posterior.count.sqrt()[:, None]
        total = torch.addmm(scatter, apart.T, apart)  # (n - 1) T
        whole = torch.linalg.vector_norm(total).item() / (len(z) - 1)  # |T|_F <= tr T <= that bound
        within = max(within, SMALLEST_SPREAD * whole)
    return z.new_tensor(within).rsqrt()


class GaussianClassifier(NamedTuple):
    """A Gaussian around each class mean, in the units of the scaled embedding.

    Args:
        posterior: Where the class means lie, in the network's units (Eq. 7).
        scale: The factor on the embedding.
        variance: Which predictive variance.
    """

    posterior: Posterior
    scale: Tensor
    variance: Variance

    def class_scores(self, z: Tensor) -> Tensor:
        """Squared distances of ``z [B, D]`` to the class means, scaled, ``[B, C]``."""
        return squared_distances(z, self.posterior.mean) * self.scale.square()

    def log_density(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Log predictive densities (numerator of Eq. 8), -inf where ``mask [B, C]`` forbids."""
        count, dim = self.posterior.count, self.posterior.mean.shape[1]
        return log_predictive_density(scores, count, mask, dim, self.variance)
