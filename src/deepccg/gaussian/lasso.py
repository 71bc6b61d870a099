"""The relaxation of the selection, as published (Eq. 12)."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from deepccg.gaussian.selection import Candidates, centred_gram, keep_largest, tie_breaker


@dataclass(frozen=True)
class LassoConfig:
    """How the relaxation of Eq. 12 is descended; the paper states none of these."""

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
        start = tie_breaker(real, generator)
    elif config.start == "memory":
        start = candidates.stored.to(torch.float32)
    else:
        start = torch.full(real.shape, 0.5, device=real.device)
    return start.masked_fill(~real, 0)
