"""The loss with its gradient, and greedy removal, as native kernels (``gaussian_kernels.cpp``).

They differ from ``posterior`` and ``selection`` in rounding only. On a few hundred numbers PyTorch
takes longer to be asked for each operation than to do it; here all of them are one call.
"""

import ctypes
import functools
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepccg.core.compile import compiled
from deepccg.gaussian.posterior import Posterior, Variance
from deepccg.gaussian.selection import FloatArray, IntArray

_TYPES = {torch.float32: "float32", torch.float64: "float64"}
_POINTER, _INT = ctypes.c_void_p, ctypes.c_int64
_ARGUMENTS: dict[str, list[Any]] = {
    "centre": [_POINTER] * 5 + [_INT] * 3,
    "likelihood": [_POINTER] * 8 + [ctypes.c_double, ctypes.c_int] + [_INT] * 4,
    "exchange": [_POINTER] * 10 + [_INT] * 5,
}
_FUNCTIONS = {f"{n}_{kind}": a for n, a in _ARGUMENTS.items() for kind in _TYPES.values()}


def unavailable_reason() -> str | None:
    """Why there are no kernels, in a few words; ``None`` if there are."""
    found = _found()
    return found if isinstance(found, str) else None


def is_supported(z: Tensor) -> bool:
    """Whether the kernels are for embeddings like these."""
    return z.is_cpu and z.dtype in _TYPES


@functools.cache
def _found() -> ctypes.CDLL | str:
    return compiled("gaussian", [Path(__file__).with_name("gaussian_kernels.cpp")], _FUNCTIONS)


def _kernel(name: str, like: Tensor) -> Any:
    return getattr(_found(), f"{name}_{_TYPES[like.dtype]}")


def centred(z: Tensor, y: Tensor, n_classes: int) -> tuple[Posterior, Tensor]:
    """``class_posterior``, and how each embedding deviates from its class's mean, ``[M, D]``."""
    z, y = z.contiguous(), y.contiguous()
    mean, count = z.new_empty(n_classes, z.shape[1]), z.new_empty(n_classes)
    deviation = torch.empty_like(z)
    pointers = (part.data_ptr() for part in (z, y, mean, count, deviation))
    _kernel("centre", z)(*pointers, len(z), n_classes, z.shape[1])
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
        The terms that exist ``[V]`` and which examples they belong to ``[B]``.
    """
    terms, exists = _Likelihood.apply(z, y, posterior, float(scale), mask, variance == "shared")  # type: ignore[no-untyped-call]  # PyTorch's
    return (terms if bool(exists.all()) else terms[exists]), exists


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
        terms, exists = z.new_empty(rows), torch.empty(rows, dtype=torch.bool)
        ctx.gradient = torch.empty_like(z)
        pointers = (
            part.data_ptr() for part in (z, mean, count, mask, y, terms, ctx.gradient, exists)
        )
        sizes = rows, len(count), dim, mask.stride(0)
        _kernel("likelihood", z)(*pointers, scale, shared, *sizes)
        ctx.mark_non_differentiable(exists)
        return terms, exists

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor, _exists: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.gradient * wanted[:, None], None, None, None, None, None


class Exchange(NamedTuple):
    """What a memory gives up, and what it takes of a batch instead, class after class.

    Args:
        freed: Slots.
        entering: Rows of the batch.
    """

    freed: IntArray
    entering: IntArray


def greedy_exchange(
    z: Tensor,
    row: IntArray,
    y: IntArray,
    stored: int,
    classes: list[int],
    quota: IntArray,
    before: FloatArray,
    generator: torch.Generator,
) -> Exchange:
    """``greedy_selection`` among stored examples and a batch, the means to keep included.

    Args:
        z: Embeddings ``[n, D]``.
        row: Where among them each stored example is, and behind these each of the batch, ``[P]``.
        y: Their class columns ``[P]``.
        stored: How many of them are in memory.
        classes: The K class columns that are reselected.
        quota: How many may be kept of each, ``[K]``.
        before: How many examples of each the stored ones stand for; negative: for themselves
            (``target_weights``), ``[K]``.
        generator: Breaks ties.
    """
    count = np.bincount(y, minlength=classes[-1] + 1)
    place_of = np.full(len(count), -1)
    place_of[classes] = np.arange(len(classes))
    shape = len(classes), int(count[classes].max())
    key = torch.rand(shape, generator=generator)  # of equals any may leave
    freed, entering, number = (
        np.empty(stored, int),
        np.empty(len(y) - stored, int),
        np.empty(2, int),
    )
    z = z.contiguous()
    arrays = (row, y, place_of, quota, before, key.numpy(), freed, entering, number)
    pointers = (array.__array_interface__["data"][0] for array in arrays)
    _kernel("exchange", z)(z.data_ptr(), *pointers, len(y), stored, *shape, z.shape[1])
    return Exchange(freed[: number[0]], entering[: number[1]])
