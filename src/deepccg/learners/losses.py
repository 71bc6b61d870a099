"""Losses more than one method needs."""

import math
from typing import Literal

import torch
from torch import Tensor

Reduction = Literal["mean", "sum"]
ReplayReduction = Literal["mean", "sum", "means"]


def masked_cross_entropy(logits: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    """``-o_y + logsumexp over the allowed classes`` for each example, ``[B]``.

    Outputs outside an example's mask get exactly no gradient from it.
    """
    allowed = logits.masked_fill(~mask, -math.inf)
    return torch.logsumexp(allowed, dim=1) - logits.gather(1, y[:, None]).squeeze(1)


def reduce(terms: Tensor, reduction: Reduction) -> Tensor:
    """Mean or sum of per-example terms."""
    return terms.mean() if reduction == "mean" else terms.sum()


def reduce_replay(terms: Tensor, batch: int, reduction: ReplayReduction) -> Tensor:
    """Reduce the terms of ``batch`` new examples and of the replayed ones behind them.

    ``mean`` and ``sum`` are over all of them; ``means`` is the mean over the batch plus the mean
    over the replay, about twice ``mean``. Where one of the two has no terms it counts nothing.
    """
    if reduction != "means":
        return reduce(terms, reduction)
    parts = [part.mean() for part in (terms[:batch], terms[batch:]) if len(part)]
    return parts[0] if len(parts) == 1 else parts[0] + parts[1]
