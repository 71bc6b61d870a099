"""Which candidates to store: the subset whose mean is nearest the mean of all data at hand.

Eq. 10 asks, for each class, for the subset M' of the candidates that minimises
|target - mean(M')|^2. That is the KL divergence between posteriors over the class mean,

    KL(N(a, I/n) || N(b, I/m)) = 1/2 [m |a - b|^2 + D (m/n - 1 - log(m/n))],

but for terms that depend on the counts n and m alone. Three selectors: ``greedy_selection`` and
``swap_selection`` minimise Eq. 10 itself, ``lasso_selection`` descends the relaxation of Eq. 12.
All classes of a batch are treated at once: candidates are padded to ``[K, N, D]`` with a mask of
the real ones.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

RANDOM_STARTS = 8  # of ``swap_selection``


@dataclass(frozen=True)
class Candidates:
    """Candidates of K classes, padded to N.

    Args:
        z: Embeddings ``[K, N, D]``.
        real: Which entries are candidates and not padding, ``[K, N]``.
        stored: Which candidates are in memory already, ``[K, N]``.
        target: The mean to keep, ``[K, D]``.
        quota: How many may be kept of each class, ``[K]``.
        seen: How many examples of each class came before this batch, ``[K]``.
    """

    z: Tensor
    real: Tensor
    stored: Tensor
    target: Tensor
    quota: Tensor
    seen: Tensor


def target_weights(real: BoolArray, stored: BoolArray, seen: IntArray | None = None) -> FloatArray:
    """The weight of each example in the mean that the memory of its class should keep, ``[K, N]``.

    As printed (``seen=None``) it is the mean of memory and batch together, in which each batch
    weighs n/(m+n) however many examples came before. With ``seen`` = N_c examples before this batch
    the m stored ones stand for all of them, N_c/m each.

    Args:
        real: Which entries are examples and not padding, ``[K, N]``.
        stored: Which of them are in memory, ``[K, N]``.
        seen: How many examples of each class came before the new ones, ``[K]``.
    """
    weight = real.astype(np.float64)
    if seen is not None:
        share = seen / np.maximum(stored.sum(axis=1), 1)
        weight = np.where(stored, share[:, None], weight)
    weight /= weight.sum(axis=1, keepdims=True)
    return weight


def selection_objective(z: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """``|target - weighted mean|^2`` for each class (Eq. 10; the fit term of Eq. 12), ``[K]``."""
    mean = torch.einsum("kn,knd->kd", weight, z) / weight.sum(dim=1, keepdim=True)
    return (target - mean).square().sum(dim=1)


def greedy_selection(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """Remove, one by one, the candidate whose removal leaves the mean nearest the target.

    Returns:
        Which candidates to keep, ``[K, N]``.
    """
    # NumPy: every removal is a few operations on a few numbers.
    z, real, target, quota = (
        part.cpu().numpy()
        for part in (candidates.z, candidates.real, candidates.target, candidates.quota)
    )
    classes, surplus = np.arange(len(real)), real.sum(axis=1) - quota
    # In random order: the first of equals is any of them.
    order = (-torch.rand(real.shape, generator=generator).numpy()).argsort(axis=1)
    first = classes * real.shape[1]  # index of each class's first candidate among all [K * N]
    flat_order = first[:, None] + order
    centred = z.reshape(-1, z.shape[2]).take(flat_order, axis=0) - target[:, None]
    padding = ~real.take(flat_order)
    centred[padding] = 0
    z_centred = torch.from_numpy(centred)  # multiplied in as many threads as PyTorch may use
    gram = torch.bmm(z_centred, z_centred.transpose(1, 2)).numpy()
    # n |mean of the rest - target| after removing i is |S - z_i| with S the sum of centred kept z;
    # half its square is half of |S|^2 and this:
    own = np.einsum("knn->kn", gram)  # a view
    cost = own / 2 - gram.sum(axis=2)
    cost[padding] = np.inf
    own[...] = np.inf  # what has left cannot leave again
    gram = gram.reshape(-1, gram.shape[2])
    leaving = np.empty((surplus.max(initial=0), len(real)), dtype=np.int64)
    for leaves in leaving:
        cost.argmin(axis=1, out=leaves)
        cost += gram.take(first + leaves, axis=0)  # S loses what leaves
    # Removals beyond a class's surplus do not count.
    removal, losing = np.nonzero(np.arange(len(leaving))[:, None] < surplus)
    keep = real.copy()
    keep[losing, order[losing, leaving[removal, losing]]] = False
    return torch.from_numpy(keep).to(candidates.real.device)


def swap_selection(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """Keep the best of several subsets that no swap of a kept and a dropped candidate improves.

    The descents start from what greedy removal keeps, from the memory as it is, and from random
    subsets: a single one ends in a local minimum, on average several percent above the best subset.
    """
    gram = centred_gram(candidates)
    scores = torch.rand(1 + RANDOM_STARTS, *gram.shape[:2], generator=generator).to(gram.device)
    scores[0] += candidates.stored
    several = len(scores) + 1
    real, quota = candidates.real.repeat(several, 1), candidates.quota.repeat(several)
    drawn = keep_largest(scores.flatten(0, 1), real[len(gram) :], quota[len(gram) :], generator)
    start = torch.cat([greedy_selection(candidates, generator), drawn])
    keep = _swapped(gram.repeat(several, 1, 1), real, start).view(several, *gram.shape[:2])
    weight = keep.to(gram.dtype)
    best = torch.einsum("tkn,knm,tkm->tk", weight, gram, weight).argmin(dim=0)
    return torch.take_along_dim(keep, best[None, :, None], dim=0)[0]


def _swapped(gram: Tensor, real: Tensor, keep: Tensor) -> Tensor:
    """Swap a kept and a dropped candidate of every row while that helps, ``[K, N]``.

    Each sweep makes the best swap of every row; the objective falls strictly, so it ends.
    """
    keep = keep.clone()
    square = gram.diagonal(dim1=1, dim2=2)
    rows = torch.arange(len(keep), device=keep.device)
    tolerance = 1e-6 * square.masked_fill(~real, 0).sum(dim=1)
    for _ in range(keep.numel()):
        inner = torch.einsum("knm,km->kn", gram, keep.to(gram.dtype))
        # |S - z_i + z_j|^2 - |S|^2 for kept i and dropped j
        change = (square - 2 * inner)[:, :, None] + (square + 2 * inner)[:, None, :] - 2 * gram
        allowed = keep[:, :, None] & (real & ~keep)[:, None, :]
        best, where = change.masked_fill(~allowed, torch.inf).flatten(1).min(dim=1)
        better = best < -tolerance
        if not bool(better.any()):
            break
        out, into = where // keep.shape[1], where % keep.shape[1]
        keep[rows[better], out[better]] = False
        keep[rows[better], into[better]] = True
    return keep


def keep_largest(score: Tensor, real: Tensor, quota: Tensor, generator: torch.Generator) -> Tensor:
    """Mark the ``quota`` largest scores of each class, ties broken at random."""
    shuffled = torch.rand(real.shape, generator=generator).to(real.device).argsort(dim=1)
    score = score.masked_fill(~real, -torch.inf)
    order = score.gather(1, shuffled).argsort(dim=1, descending=True, stable=True)
    ranked = shuffled.gather(1, order)
    position = torch.arange(real.shape[1], device=real.device).expand_as(ranked)
    keep = torch.zeros_like(real).scatter(1, ranked, position < quota[:, None])
    return keep & real


def centred_gram(candidates: Candidates) -> Tensor:
    """Inner products of the candidates minus the target, ``[K, N, N]``; padding gives zeros."""
    centred = torch.where(candidates.real[:, :, None], candidates.z - candidates.target[:, None], 0)
    return torch.bmm(centred, centred.transpose(1, 2))


@dataclass(frozen=True)
class LassoConfig:
    """Settings of the descent on the relaxation, Eq. 12; the paper states none of these."""

    penalty: float = 1e-3
    steps: int = 100
    lr: float = 0.1
    start: Literal["random", "memory", "constant"] = "random"
    constraint: Literal["clip", "sigmoid"] = "clip"
    normalise: bool = True


def lasso_gradient(gram: Tensor, weight: Tensor, penalty: float) -> Tensor:
    """Gradient of Eq. 12 in the weights, for non-negative weights, ``[K, N]``.

    With v = beta / |beta|_1 and z centred on the target, the fit is |sum_i v_i z_i|^2 and its
    derivative 2 (z_i . e - v . (z . e)) / |beta|_1, where e = sum_i v_i z_i. Equal weights with the
    plain mean as target have e = 0 and so no fit gradient at all: the start decides.

    Args:
        gram: Inner products of the centred candidates, ``[K, N, N]``.
        weight: beta, ``[K, N]``, zero on padding.
        penalty: lambda.
    """
    norm = weight.sum(dim=1, keepdim=True).clamp(min=1e-6)
    share = weight / norm
    inner = torch.einsum("knm,km->kn", gram, share)
    error = (share * inner).sum(dim=1, keepdim=True)
    return penalty + 2 * (inner - error) / norm


def lasso_selection(
    candidates: Candidates, config: LassoConfig, generator: torch.Generator
) -> Tensor:
    """Selection as published: descend Eq. 12, keep the candidates with the largest weights.

    The relaxation's minimiser is the uniform weight vector, so what is kept is decided by the
    start and partly corrected by the first steps; ``greedy`` and ``swap`` minimise Eq. 10 itself.
    """
    gram = centred_gram(candidates)
    real = candidates.real
    if config.normalise:  # one step size for every layer, scale and time
        counts = real.sum(dim=1).to(gram.dtype)
        square = gram.diagonal(dim1=1, dim2=2).masked_fill(~real, 0).sum(dim=1)
        spread = square / (counts * candidates.z.shape[2])
        gram = gram / torch.where(spread > 0, spread, torch.ones_like(spread))[:, None, None]
    weight = _lasso_start(candidates, config, generator).to(gram.dtype)
    for _ in range(config.steps):
        gradient = lasso_gradient(gram, weight, config.penalty)
        if config.constraint == "sigmoid":
            logit = torch.logit(weight, eps=1e-6) - config.lr * gradient * weight * (1 - weight)
            weight = torch.sigmoid(logit)
        else:
            weight = (weight - config.lr * gradient).clamp(0, 1)
        weight = weight.masked_fill(~real, 0)
    return keep_largest(weight, real, candidates.quota, generator)


def _lasso_start(candidates: Candidates, config: LassoConfig, generator: torch.Generator) -> Tensor:
    real = candidates.real
    if config.start == "random":
        start = torch.rand(real.shape, generator=generator).to(real.device)
    elif config.start == "memory":
        start = candidates.stored.to(torch.float32)
    else:
        start = torch.full(real.shape, 0.5, device=real.device)
    return start.masked_fill(~real, 0)
