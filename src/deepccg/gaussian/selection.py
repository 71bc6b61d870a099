"""Which candidates to store: the subset whose mean is nearest the mean of all data at hand.

Eq. 10 asks, for each class, for the subset M' of the candidates that minimises
|target - mean(M')|^2. All classes of a batch are treated at once: candidates are padded to
``[K, N, D]`` with a mask of the real ones.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


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


@dataclass(frozen=True)
class LassoConfig:
    """How the relaxation of Eq. 12 is descended; the paper states none of these."""

    penalty: float = 1e-3
    steps: int = 100
    lr: float = 0.1
    start: Literal["random", "memory", "constant"] = "random"
    constraint: Literal["clip", "sigmoid"] = "clip"
    normalise: bool = True


def target_mean(stored: Tensor, new: Tensor, seen: int | None = None) -> Tensor:
    """The mean that memory should keep, from embeddings ``stored [m, D]`` and ``new [n, D]``.

    As printed (``seen=None``), the mean of memory and batch together, in which each batch weighs
    n/(m+n) however many examples came before. With ``seen`` = N_c examples before this batch the
    memory stands for all of them: (N_c mean(stored) + sum(new)) / (N_c + n).
    """
    if seen is None or len(stored) == 0:
        return torch.cat([stored, new]).mean(dim=0)
    return (seen * stored.mean(dim=0) + new.sum(dim=0)) / (seen + len(new))


def selection_objective(z: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    """|target - weighted mean|^2 for each class (Eq. 10; the fit term of Eq. 12), ``[K]``."""
    mean = torch.einsum("kn,knd->kd", weight, z) / weight.sum(dim=1, keepdim=True)
    return (target - mean).square().sum(dim=1)


def greedy_selection(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """Remove, one by one, the candidate whose removal leaves the mean nearest the target.

    Returns:
        Which candidates to keep, ``[K, N]``.
    """
    gram = _centred_gram(candidates)
    keep = candidates.real.clone()
    tie = _tie_breaker(keep, generator)
    # n |mean of the rest - target| after removing i is |S - z_i| with S the sum of centred kept z.
    for _ in range(keep.shape[1]):
        surplus = keep.sum(dim=1) > candidates.quota
        if not bool(surplus.any()):
            break
        inner = torch.einsum("knm,km->kn", gram, keep.to(gram.dtype))
        cost = (gram.diagonal(dim1=1, dim2=2) - 2 * inner).masked_fill(~keep, torch.inf)
        best = keep & (cost == cost.amin(dim=1, keepdim=True))
        leaves = tie.masked_fill(~best, -1.0).argmax(dim=1)
        keep[surplus, leaves[surplus]] = False
    return keep


def swap_selection(candidates: Candidates, generator: torch.Generator) -> Tensor:
    """Greedy removal, then swap a kept and a dropped candidate while that helps.

    Each sweep makes the best swap of every class; the objective falls strictly, so it ends at a
    subset that no single swap improves.
    """
    keep = greedy_selection(candidates, generator)
    gram = _centred_gram(candidates)
    square = gram.diagonal(dim1=1, dim2=2)
    rows = torch.arange(len(keep), device=keep.device)
    tolerance = 1e-6 * square.masked_fill(~candidates.real, 0).sum(dim=1)
    for _ in range(keep.numel()):
        inner = torch.einsum("knm,km->kn", gram, keep.to(gram.dtype))
        # |S - z_i + z_j|^2 - |S|^2 for kept i and dropped j
        change = (square - 2 * inner)[:, :, None] + (square + 2 * inner)[:, None, :] - 2 * gram
        allowed = keep[:, :, None] & (candidates.real & ~keep)[:, None, :]
        best, where = change.masked_fill(~allowed, torch.inf).flatten(1).min(dim=1)
        better = best < -tolerance
        if not bool(better.any()):
            break
        out, into = where // keep.shape[1], where % keep.shape[1]
        keep[rows[better], out[better]] = False
        keep[rows[better], into[better]] = True
    return keep


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
    gram = _centred_gram(candidates)
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


def keep_largest(score: Tensor, real: Tensor, quota: Tensor, generator: torch.Generator) -> Tensor:
    """Mark the ``quota`` largest scores of each class, ties broken at random."""
    shuffled = _tie_breaker(real, generator).argsort(dim=1)
    score = score.masked_fill(~real, -torch.inf)
    order = score.gather(1, shuffled).argsort(dim=1, descending=True, stable=True)
    ranked = shuffled.gather(1, order)
    position = torch.arange(real.shape[1], device=real.device).expand_as(ranked)
    keep = torch.zeros_like(real).scatter(1, ranked, position < quota[:, None])
    return keep & real


def _lasso_start(candidates: Candidates, config: LassoConfig, generator: torch.Generator) -> Tensor:
    real = candidates.real
    if config.start == "random":
        start = _tie_breaker(real, generator)
    elif config.start == "memory":
        start = candidates.stored.to(torch.float32)
    else:
        start = torch.full(real.shape, 0.5, device=real.device)
    return start.masked_fill(~real, 0)


def _centred_gram(candidates: Candidates) -> Tensor:
    """Inner products of the candidates, seen from the target; padding gives zeros."""
    centred = (candidates.z - candidates.target[:, None]).masked_fill(
        ~candidates.real[:, :, None], 0
    )
    return centred @ centred.transpose(1, 2)


def _tie_breaker(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.rand(like.shape, generator=generator).to(like.device)
