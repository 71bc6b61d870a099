"""Convolution and instance normalisation by native kernels, with gradients.

Images lie side by side in memory, ``[H, W, C, B]`` with B a multiple of eight: processors compute
with eight numbers at a time, and these are the same place of eight images. To PyTorch they are
tensors ``[B, C, H, W]`` like any other, with strides of their own.
"""

import ctypes
import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepccg.core.compile import compiled

_HERE = Path(__file__).parent
_SOURCES = [_HERE / name for name in ("convolution.cpp", "instance_norm.cpp")]

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS: dict[str, list[Any]] = {
    "convolve": [_POINTER] * 4 + [_INT],
    "convolve_back": [_POINTER] * 4 + [_INT],
    "convolve_weights": [_POINTER] * 4 + [ctypes.c_int64, _INT],
    "instance_norm": [_POINTER] * 7 + [ctypes.c_float] + [_INT] * 2,
    "instance_norm_back": [_POINTER] * 11 + [_INT],
}


def unavailable_reason() -> str | None:
    """Why there are no kernels, in a few words; ``None`` if there are."""
    found = _found()
    return found if isinstance(found, str) else None


def kernels() -> ctypes.CDLL:
    """The compiled functions; who asks for them has asked ``unavailable_reason`` before."""
    found = _found()
    assert not isinstance(found, str)  # noqa: S101  (see above)
    return found


@functools.cache
def _found() -> ctypes.CDLL | str:
    return compiled("network", _SOURCES, _FUNCTIONS, headers=[_HERE / "simd.h"])


@dataclass(frozen=True)
class PerSampleGradients:
    """Gradients of parameters for each image by itself, by the parameter's ``id``.

    Args:
        count: Images, without those that fill up.
        gradients: ``[count, *shape]`` for each parameter.
    """

    count: int
    gradients: dict[int, Tensor] = field(default_factory=dict)

    def add(self, key: int, gradient: Tensor) -> None:
        """Note one; those of a parameter that is used twice are added."""
        known = self.gradients.get(key)
        self.gradients[key] = gradient if known is None else known + gradient


_noted: ContextVar[PerSampleGradients | None] = ContextVar("noted", default=None)


@contextmanager
def collect_per_sample_gradients(count: int) -> Iterator[dict[int, Tensor]]:
    """What is computed within it, from ``count`` images, has its parameters' gradients ``PerSampleGradients``.

    They are noted by the backward pass, which gives the parameters themselves none.
    """
    noted = PerSampleGradients(count)
    token = _noted.set(noted)
    try:
        yield noted.gradients
    finally:
        _noted.reset(token)


def present_notes() -> PerSampleGradients | None:
    """Where what is computed now is to be noted."""
    return _noted.get()


LANES = 8
Shape = ctypes.Array[ctypes.c_int64]  # the integers a kernel wants to know


def is_supported(x: Tensor) -> bool:
    """Whether the kernels are for tensors like this one."""
    return x.dtype == torch.float32 and x.is_cpu and not torch.compiler.is_compiling()


def pad_batch(x: Tensor) -> Tensor:
    """``x [B, ...]`` with blank images added until eight divides their number."""
    blank = -x.shape[0] % LANES
    return torch.cat([x, x.new_zeros(blank, *x.shape[1:])]) if blank else x


def convolve(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """``[B, I, H, W] -> [B, O, ...]`` by ``weight [O, I, K, K]``, with gradient."""
    smallest = weight.shape[-1] - 2 * padding
    known = x.ndim == 4 and x.shape[1] == weight.shape[1] and x.dtype == weight.dtype
    if not known or min(x.shape[2:]) < smallest:
        raise ValueError(f"images {list(x.shape)} do not fit filters {list(weight.shape)}")
    y: Tensor = _Convolution.apply(pad_batch(x), weight, stride, padding)  # type: ignore[no-untyped-call]  # PyTorch's
    return _first(y, x.shape[0])


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
    residual: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Each channel of each image of ``x [B, C, H, W]`` normalised, with gradient.

    Args:
        x: Images.
        weight: Scale ``[C]``, if there is one.
        bias: Shift ``[C]``, the same.
        epsilon: Added to the variance.
        residual: Added to the result, ``[B, C, H, W]``.
        relu: Whether negative results become 0.
    """
    if x.ndim != 4 or any(
        each is not None and (each.shape != shape or each.dtype != x.dtype)
        for each, shape in ((weight, x.shape[1:2]), (bias, x.shape[1:2]), (residual, x.shape))
    ):
        raise ValueError(f"images {list(x.shape)} do not fit the norm")
    if residual is not None:
        residual = pad_batch(residual)
    y: Tensor = _InstanceNorm.apply(pad_batch(x), weight, bias, residual, epsilon, relu)  # type: ignore[no-untyped-call]  # PyTorch's
    return _first(y, x.shape[0])


class _Convolution(torch.autograd.Function):
    """``convolve`` of as many images as fill registers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.noted, ctx.key = present_notes(), id(weight)
        x, weight = _laid_out(x), weight.contiguous()
        count, _, *sides = x.shape
        outputs, _, kernel, _ = weight.shape
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in sides)
        y = x.new_empty(height, width, outputs, count).permute(3, 2, 0, 1)
        ctx.shape = _geometry(x.shape, y.shape, kernel, stride, padding)
        ctx.save_for_backward(x, weight)
        kernels().convolve(ctx.shape, *_addresses(x, weight, y), _threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient = _laid_out(gradient)
        of_x = of_weight = None
        if ctx.needs_input_grad[0]:
            of_x = torch.empty_like(x)
            kernels().convolve_back(ctx.shape, *_addresses(gradient, weight, of_x), _threads())
        if ctx.needs_input_grad[1]:
            of_weight = _weight_gradient(ctx.shape, x, gradient, weight, ctx.noted)
            if ctx.noted is not None:
                ctx.noted.add(ctx.key, of_weight)
                of_weight = None
        return of_x, of_weight, None, None


def _weight_gradient(
    shape: Shape, x: Tensor, gradient: Tensor, weight: Tensor, noted: PerSampleGradients | None
) -> Tensor:
    """Summed over the images, like ``weight``; if it is to be noted, ``[count, *weight.shape]``."""
    if noted is None:
        found, each = torch.empty_like(weight), -1
    else:
        each = min(noted.count, x.shape[0])
        found = weight.new_empty(each, *weight.shape)
    kernels().convolve_weights(shape, *_addresses(x, gradient, found), each, _threads())
    return found


class _InstanceNorm(torch.autograd.Function):
    """``instance_norm`` of as many images as fill registers."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        residual: Tensor | None,
        epsilon: float,
        relu: bool,
    ) -> Tensor:
        ctx.noted, ctx.keys = present_notes(), (id(weight), id(bias))
        x, residual = _laid_out(x), None if residual is None else _laid_out(residual)
        y, moments = torch.empty_like(x), x.new_empty(2, x.shape[1], x.shape[0])
        ctx.save_for_backward(x, y if relu else None, weight, moments)
        places = _addresses(x, weight, bias, residual, y, moments)
        kernels().instance_norm(_pixels(x.shape), *places, epsilon, relu, _threads())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, moments = ctx.saved_tensors
        of_x, of_each = torch.empty_like(x), torch.empty_like(moments)
        of_weight = of_bias = of_residual = None
        if weight is not None and ctx.noted is None:
            of_weight, of_bias = torch.empty_like(weight), torch.empty_like(weight)
        if ctx.needs_input_grad[3]:
            of_residual = torch.empty_like(x)
        gradient = _laid_out(gradient)
        given = _addresses(gradient, x, y, weight, moments)
        places = _addresses(of_x, of_residual, of_each, of_weight, of_bias)
        kernels().instance_norm_back(_pixels(x.shape), *given, *places, _threads())
        if weight is not None and ctx.noted is not None:
            for key, of_images in zip(ctx.keys, of_each, strict=True):
                ctx.noted.add(key, of_images.T[: ctx.noted.count])
        return of_x, of_weight, of_bias, of_residual, None, None


def _laid_out(x: Tensor) -> Tensor:
    """In memory as ``[H, W, C, B]``."""
    count, channels, _, width = x.shape
    if x.stride() == (1, count, width * channels * count, channels * count):
        return x
    return x.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)


def _first(y: Tensor, count: int) -> Tensor:
    return y if y.shape[0] == count else y[:count]


@lru_cache(maxsize=1024)
def _geometry(x: torch.Size, y: torch.Size, kernel: int, stride: int, padding: int) -> Shape:
    return _integers(*x[2:], x[1], *y[2:], y[1], kernel, stride, padding, x[0])


@lru_cache(maxsize=1024)
def _pixels(x: torch.Size) -> Shape:
    return _integers(x[2] * x[3], x[1], x[0])


def _integers(*values: int) -> Shape:
    return (ctypes.c_int64 * len(values))(*values)


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _threads() -> int:
    return torch.get_num_threads()
