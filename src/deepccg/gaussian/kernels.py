"""The loss with its gradient, and greedy removal, as native kernels (``typed_kernels.h``).

They differ from ``posterior`` and ``selection`` in rounding only. On a few hundred numbers PyTorch
takes longer to dispatch each operation than to compute it; here all of them are one call.
"""

import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepccg.core.compile import Kernel, KernelLibrary, load_kernels
from deepccg.gaussian.kernel_self_test import self_test
from deepccg.gaussian.posterior import Posterior, Variance
from deepccg.gaussian.selection import FloatArray, IntArray

_HERE = Path(__file__).parent
_SOURCES, _HEADERS = [_HERE / "gaussian_kernels.cpp"], [_HERE / "typed_kernels.h"]
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
    return load_kernels("gaussian", _SOURCES, _HEADERS, self_test)


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
        z=z,
        y=y,
        mean=mean,
        count=count,
        deviation=deviation,
        rows=len(z),
        classes=n_classes,
        dim=z.shape[1],
    )
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
            z=z,
            mean=mean,
            count=count,
            mask=mask,
            y=y,
            log_prob=log_prob,
            gradient=ctx.gradient,
            valid=valid,
            scale=scale,
            shared=shared,
            rows=rows,
            classes=len(count),
            dim=dim,
            mask_stride=mask.stride(0),
        )
        ctx.mark_non_differentiable(valid)
        return log_prob, valid

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _valid: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.gradient * gradient[:, None], None, None, None, None, None


class Exchange(NamedTuple):
    """What leaves a memory, and what enters it from a batch, class after class.

    Args:
        evicted: Slots.
        admitted: Rows of the batch.
    """

    evicted: IntArray
    admitted: IntArray


def greedy_exchange(
    z: Tensor,
    row: IntArray,
    y: IntArray,
    stored: int,
    classes: list[int],
    quota: IntArray,
    seen: FloatArray,
    generator: torch.Generator,
) -> Exchange:
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
    """
    count = np.bincount(y, minlength=classes[-1] + 1)
    class_index = np.full(len(count), -1, dtype=np.int64)
    class_index[classes] = np.arange(len(classes))
    candidates = int(count[classes].max())
    key = torch.rand((len(classes), candidates), generator=generator)  # of equals any may leave
    evicted, admitted, n_changed = (np.empty(n, np.int64) for n in (stored, len(y) - stored, 2))
    z = z.contiguous()
    _kernel("exchange", z)(
        z=z,
        row=row,
        y=y,
        class_index=class_index,
        quota=quota,
        seen=seen,
        key=key,
        evicted=evicted,
        admitted=admitted,
        n_changed=n_changed,
        pool=len(y),
        stored=stored,
        classes=len(classes),
        candidates=candidates,
        dim=z.shape[1],
    )
    return Exchange(evicted[: n_changed[0]], admitted[: n_changed[1]])
