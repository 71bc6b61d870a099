"""The loss with its gradient, and greedy removal, as native kernels (``typed_kernels.h``).

They differ from ``posterior`` and ``selection`` in rounding only. On a few hundred numbers PyTorch
takes longer to dispatch each operation than to compute it; here all of them are one call.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepccg.core.compile import Check, Kernel, KernelLibrary, load_kernels
from deepccg.gaussian.posterior import (
    Posterior,
    Variance,
    class_posterior,
    log_predictive_density,
    squared_distances,
)
from deepccg.gaussian.selection import FloatArray, IntArray

_HERE = Path(__file__).parent
_TYPES = {torch.float32: "float32", torch.float64: "float64"}


def unavailable_reason() -> str | None:
    """Why the kernels cannot be used on this machine, in a few words; ``None`` if they can."""
    library = _library()
    return library if isinstance(library, str) else None


def is_supported(z: Tensor) -> bool:
    """Whether the kernels are for embeddings of this type and device."""
    return z.is_cpu and z.dtype in _TYPES


@functools.cache
def _library() -> KernelLibrary | str:
    return load_kernels(_HERE, self_test)


def _kernel(name: str, like: Tensor) -> Kernel:
    """The kernel for tensors of the type of ``like``, for callers that know it is available."""
    library = _library()
    assert not isinstance(library, str)  # noqa: S101  (see above)
    return library[f"{name}_{_TYPES[like.dtype]}"]


def centred(z: Tensor, y: Tensor, n_classes: int) -> tuple[Posterior, Tensor]:
    """Return ``class_posterior``, and each embedding minus its class's mean ``[M, D]``."""
    z, y = z.contiguous(), y.contiguous()
    mean, count = z.new_empty(n_classes, z.shape[1]), z.new_empty(n_classes)
    deviation = torch.empty_like(z)
    _kernel("centre", z)(
        z=z, y=y, mean=mean, count=count, deviation=deviation,
        rows=len(z), classes=n_classes, dim=z.shape[1],
    )  # fmt: skip
    return Posterior(mean, count), deviation


def conditional_marginal_likelihood(
    z: Tensor, y: Tensor, posterior: Posterior, scale: Tensor, mask: Tensor, variance: Variance
) -> tuple[Tensor, Tensor]:
    """``log_conditional_marginal_likelihood`` of the scaled predictive densities (Eqs. 8, 9).

    Args:
        z: Embeddings ``[B, D]``, the only argument that a gradient goes to.
        y: Class columns ``[B]``.
        posterior: Over the class means, in the same units.
        scale: The factor on all of them.
        mask: Allowed classes ``[B, C]``.
        variance: ``shared`` or ``per-class``.

    Returns:
        The log probabilities of the valid examples ``[V]``, and which examples are valid ``[B]``.
    """
    log_prob, valid = _Likelihood.apply(z, y, posterior, float(scale), mask, variance == "shared")  # type: ignore[no-untyped-call]  # PyTorch's
    return (log_prob if bool(valid.all()) else log_prob[valid]), valid


class _Likelihood(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        z: Tensor,
        y: Tensor,
        posterior: Posterior,
        scale: float,
        mask: Tensor,
        shared: bool,
    ) -> tuple[Tensor, Tensor]:
        rows, dim = z.shape
        z, y, mean, count = (
            part.contiguous() for part in (z, y, posterior.mean, posterior.count.to(z.dtype))
        )
        if mask.stride(1) != 1:
            mask = mask.contiguous()
        log_prob, valid = z.new_empty(rows), torch.empty(rows, dtype=torch.bool)
        ctx.gradient = torch.empty_like(z)
        _kernel("likelihood", z)(
            z=z, mean=mean, count=count, mask=mask, y=y, log_prob=log_prob, gradient=ctx.gradient,
            valid=valid, scale=scale, shared=shared, rows=rows, classes=len(count), dim=dim,
            mask_stride=mask.stride(0),
        )  # fmt: skip
        ctx.mark_non_differentiable(valid)
        return log_prob, valid

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _valid: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.gradient * gradient[:, None], None, None, None, None, None


def greedy_exchange(
    z: Tensor,
    row: IntArray,
    y: IntArray,
    stored: int,
    classes: list[int],
    quota: IntArray,
    seen: FloatArray,
    generator: torch.Generator,
) -> tuple[IntArray, IntArray]:
    """``greedy_selection`` among stored examples and a batch, the target means included.

    Args:
        z: Embeddings ``[n, D]``.
        row: Where among them each stored example is, followed by each of the batch, ``[P]``.
        y: Their class columns ``[P]``.
        stored: How many of them are in memory.
        classes: The K class columns that are reselected.
        quota: How many may be kept of each, ``[K]``.
        seen: How many examples of each the stored ones stand for; negative: for themselves
            (``target_weights``), ``[K]``.
        generator: Breaks ties.

    Returns:
        Slots that leave the memory and positions in the batch that enter it, class after class.
    """
    count = np.bincount(y, minlength=classes[-1] + 1)
    class_index = np.full(len(count), -1, dtype=np.int64)
    class_index[classes] = np.arange(len(classes))
    candidates = int(count[classes].max())
    key = torch.rand((len(classes), candidates), generator=generator)  # of equals any may leave
    evicted, admitted, n_changed = (np.empty(n, np.int64) for n in (stored, len(y) - stored, 2))
    z = z.contiguous()
    _kernel("exchange", z)(
        z=z, row=row, y=y, class_index=class_index, quota=quota, seen=seen, key=key,
        evicted=evicted, admitted=admitted, n_changed=n_changed, pool=len(y), stored=stored,
        classes=len(classes), candidates=candidates, dim=z.shape[1],
    )  # fmt: skip
    return evicted[: n_changed[0]], admitted[: n_changed[1]]


# The self-test: each kernel on ten embeddings, next to what PyTorch computes.

Compared = tuple[list[Tensor], list[Tensor]]  # results, and the expected ones


def self_test(library: KernelLibrary) -> Iterator[Check]:
    """Yield for each kernel its name, its results and the expected ones."""
    count = torch.arange(30, device="cpu")
    numbers = (count * count * 37 % 101 / 50 - 1).view(10, 3)  # irregular, in [-1, 1]
    y = torch.tensor([0, 1, 3, 1, 3, 1, 3, 0, 3, 1], device="cpu")  # of four classes
    for suffix, dtype in (("float32", torch.float32), ("float64", torch.float64)):
        z = numbers.to(dtype)
        yield f"centre_{suffix}", *_centre(library[f"centre_{suffix}"], z, y)
        for shared in (True, False):
            kernel = library[f"likelihood_{suffix}"]
            yield f"likelihood_{suffix}", *_likelihood(kernel, z, y, shared)
        yield f"exchange_{suffix}", *_exchange(library[f"exchange_{suffix}"], z, y)


def _centre(kernel: Kernel, z: Tensor, y: Tensor) -> Compared:
    mean, count, deviation = z.new_empty(4, 3), z.new_empty(4), torch.empty_like(z)
    kernel(z=z, y=y, mean=mean, count=count, deviation=deviation, rows=10, classes=4, dim=3)
    right = class_posterior(z, y, 4)
    return [mean, count, deviation], [right.mean, right.count, z - right.mean[y]]


def _likelihood(kernel: Kernel, z: Tensor, y: Tensor, shared: bool) -> Compared:
    """With a class of no examples, and classes that the mask leaves out."""
    mean, count = z[:4] + 0.5, z.new_tensor([2, 5, 0, 1.5])
    mask = y.new_tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool().repeat(5, 1)
    log_prob, gradient, valid = z.new_empty(10), torch.empty_like(z), torch.empty_like(y).bool()
    kernel(
        z=z, mean=mean, count=count, mask=mask, y=y, log_prob=log_prob, gradient=gradient,
        valid=valid, scale=1.5, shared=shared, rows=10, classes=4, dim=3, mask_stride=4,
    )  # fmt: skip
    z = z.detach().requires_grad_()
    variance: Variance = "shared" if shared else "per-class"
    distance = squared_distances(z, mean) * 1.5**2
    density = log_predictive_density(distance, count, mask, 3, variance)
    own = density.gather(1, y[:, None]).squeeze(1)
    right_valid = own.isfinite()  # of the others two are known in every row
    right = (own - density.logsumexp(dim=1))[right_valid]
    (right_gradient,) = torch.autograd.grad(right.sum(), z)
    return [valid, log_prob[right_valid], gradient], [right_valid, right, right_gradient]


def _exchange(kernel: Kernel, z: Tensor, y: Tensor) -> Compared:
    """Of classes 1 and 3, with six stored examples whose embeddings lie in another order."""
    stored, quota = 6, {1: 2, 3: 1}
    row, seen = y.new_tensor(range(9, -1, -1)), {1: 7.0, 3: -1.0}
    evicted, admitted, n_changed = (y.new_empty(n) for n in (6, 4, 2))
    kernel(
        z=z, row=row, y=y, class_index=y.new_tensor([-1, 0, -1, 1]),
        quota=y.new_tensor([*quota.values()]), seen=z.new_tensor([*seen.values()]).double(),
        key=z.new_zeros(2, 4).float(), evicted=evicted, admitted=admitted, n_changed=n_changed,
        pool=10, stored=stored, classes=2, candidates=4, dim=3,
    )  # fmt: skip
    leaves, enters = [], []
    for label in (1, 3):
        own = torch.nonzero(y == label).flatten().tolist()
        share = max(seen[label], 0) / sum(i < stored for i in own) or 1.0
        weight = z.new_tensor([share if i < stored else 1.0 for i in own])
        keep = _greedy(z[row[own]], weight, quota[label])
        leaves += [i for at, i in enumerate(own) if i < stored and at not in keep]
        enters += [i - stored for at, i in enumerate(own) if i >= stored and at in keep]
    counts = y.new_tensor([len(leaves), len(enters)])
    results = [n_changed, evicted[: len(leaves)], admitted[: len(enters)]]
    return results, [counts, y.new_tensor(leaves), y.new_tensor(enters)]


def _greedy(z: Tensor, weight: Tensor, quota: int) -> list[int]:
    """What is left when the mean is kept nearest to the weighted mean of all (Eq. 10)."""
    target = weight @ z / weight.sum()
    keep = list(range(len(z)))
    while len(keep) > quota:
        rest = [[i for i in keep if i != leaving] for leaving in keep]
        keep = min(rest, key=lambda some: float((z[some].mean(dim=0) - target).norm()))
    return keep
