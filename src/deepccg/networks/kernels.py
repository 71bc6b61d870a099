"""Convolution and instance normalisation by native kernels, with gradients.

The kernels (``convolution.cpp``, ``instance_norm.cpp``) want images batch last in memory,
``[H, W, C, B]`` with B a multiple of the lanes of a SIMD register, which holds the same pixel and
channel of as many images. To PyTorch they are tensors ``[B, C, H, W]`` like any other, with other
strides. Gradients of parameters are summed over the batch, or per sample within
``collect_per_sample_gradients``.
"""

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepccg.core.compile import KernelLibrary, Sizes, load_kernels
from deepccg.networks.kernel_self_test import self_test

_HERE = Path(__file__).parent


def unavailable_reason() -> str | None:
    """Why the kernels cannot be used on this machine, in a few words; ``None`` if they can."""
    library = _library()
    return library if isinstance(library, str) else None


def is_supported(x: Tensor) -> bool:
    """Whether the kernels are for tensors of this type, device and mode."""
    return x.dtype == torch.float32 and x.is_cpu and not torch.compiler.is_compiling()


@functools.cache
def _library() -> KernelLibrary | str:
    return load_kernels(_HERE, self_test)


def _kernels() -> KernelLibrary:
    """The compiled kernels, for callers that know that they are available."""
    library = _library()
    assert not isinstance(library, str)  # noqa: S101  (see above)
    return library


@functools.cache
def _lanes() -> int:
    """Numbers in a register: eight, or four of NEON's."""
    count = torch.empty(1, dtype=torch.int64, device="cpu")
    _kernels()["lanes"](count=count)
    return int(count)


@dataclass(frozen=True)
class PerSampleGradients:
    """Gradients of parameters for each image of a batch, by the parameter's ``id``.

    Args:
        count: Images, without those that pad the batch.
        gradients: ``[count, *shape]`` for each parameter.
    """

    count: int
    gradients: dict[int, Tensor] = field(default_factory=dict)

    def add(self, key: int, gradient: Tensor) -> None:
        """Add one; those of a parameter that is used twice are summed."""
        known = self.gradients.get(key)
        self.gradients[key] = gradient if known is None else known + gradient


_collected: ContextVar[PerSampleGradients | None] = ContextVar("collected", default=None)


@contextmanager
def collect_per_sample_gradients(count: int) -> Iterator[dict[int, Tensor]]:
    """Collect per-sample gradients of the parameters used within, for a batch of ``count`` images.

    The backward pass fills the dictionary and leaves the ``grad`` of these parameters as it is.
    """
    collected = PerSampleGradients(count)
    token = _collected.set(collected)
    try:
        yield collected.gradients
    finally:
        _collected.reset(token)


def collects_per_sample_gradients() -> bool:
    """Whether gradients are being collected image by image, so that a batch must stay whole."""
    return _collected.get() is not None


def pad_batch(x: Tensor) -> Tensor:
    """``x [B, ...]`` with blank images added until B fills whole registers."""
    blank = -x.shape[0] % _lanes()
    return torch.cat([x, x.new_zeros(blank, *x.shape[1:])]) if blank else x


def convolve(x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
    """``[B, I, H, W] -> [B, O, ...]`` by ``weight [O, I, K, K]``, with gradient."""
    smallest = weight.shape[-1] - 2 * padding
    known = x.ndim == 4 and x.shape[1] == weight.shape[1] and x.dtype == weight.dtype
    if not known or min(x.shape[2:]) < smallest:
        raise ValueError(f"images {list(x.shape)} do not fit filters {list(weight.shape)}")
    y: Tensor = _Convolution.apply(pad_batch(x), weight, stride, padding)  # type: ignore[no-untyped-call]  # PyTorch's
    return _without_padding(y, x.shape[0])


def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    epsilon: float,
    residual: Tensor | None = None,
    relu: bool = False,
) -> Tensor:
    """Normalise each channel of each image of ``x [B, C, H, W]``, with gradient.

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
    return _without_padding(y, x.shape[0])


class _Convolution(torch.autograd.Function):
    """``convolve`` of a padded batch."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.collected, ctx.key = _collected.get(), id(weight)
        x, weight = _batch_last(x), weight.contiguous()
        count, _, *sides = x.shape
        outputs, _, kernel, _ = weight.shape
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in sides)
        y = x.new_empty(height, width, outputs, count).permute(3, 2, 0, 1)
        ctx.sizes = _convolution_sizes(x.shape, y.shape, kernel, stride, padding)
        ctx.save_for_backward(x, weight)
        _kernels()["convolve"](
            sizes=ctx.sizes, images=x, weights=weight, results=y, threads=torch.get_num_threads()
        )
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        gradient = _batch_last(gradient)
        x_gradient = weight_gradient = None
        if ctx.needs_input_grad[0]:
            x_gradient = torch.empty_like(x)
            _kernels()["convolve_images_gradient"](
                sizes=ctx.sizes, gradient=gradient, weights=weight, images_gradient=x_gradient,
                threads=torch.get_num_threads(),
            )  # fmt: skip
        if ctx.needs_input_grad[1]:
            weight_gradient = _weight_gradient(ctx.sizes, x, gradient, weight, ctx.collected)
            if ctx.collected is not None:
                ctx.collected.add(ctx.key, weight_gradient)
                weight_gradient = None
        return x_gradient, weight_gradient, None, None


def _weight_gradient(
    sizes: Sizes, x: Tensor, gradient: Tensor, weight: Tensor, collected: PerSampleGradients | None
) -> Tensor:
    """Summed over the images, like ``weight``; per sample if collected, ``[count, O, I, K, K]``."""
    if collected is None:
        result, samples = torch.empty_like(weight), -1
    else:
        samples = min(collected.count, x.shape[0])
        result = weight.new_empty(samples, *weight.shape)
    _kernels()["convolve_weights_gradient"](
        sizes=sizes, images=x, gradient=gradient, weights_gradient=result, samples=samples,
        threads=torch.get_num_threads(),
    )  # fmt: skip
    return result


class _InstanceNorm(torch.autograd.Function):
    """``instance_norm`` of a padded batch."""

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
        ctx.collected, ctx.keys = _collected.get(), (id(weight), id(bias))
        x, residual = _batch_last(x), None if residual is None else _batch_last(residual)
        y, moments = torch.empty_like(x), x.new_empty(2, x.shape[1], x.shape[0])
        ctx.save_for_backward(x, y if relu else None, weight, moments)
        _kernels()["instance_norm"](
            sizes=_norm_sizes(x.shape), x=x, weight=weight, bias=bias, residual=residual, y=y,
            moments=moments, epsilon=epsilon, relu=relu, threads=torch.get_num_threads(),
        )  # fmt: skip
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, y, weight, moments = ctx.saved_tensors
        x_gradient, sample_gradients = torch.empty_like(x), torch.empty_like(moments)
        weight_gradient = bias_gradient = residual_gradient = None
        if weight is not None and ctx.collected is None:
            weight_gradient, bias_gradient = torch.empty_like(weight), torch.empty_like(weight)
        if ctx.needs_input_grad[3]:
            residual_gradient = torch.empty_like(x)
        _kernels()["instance_norm_gradient"](
            sizes=_norm_sizes(x.shape), gradient=_batch_last(gradient), x=x, y=y, weight=weight,
            moments=moments, x_gradient=x_gradient, residual_gradient=residual_gradient,
            sample_gradients=sample_gradients, weight_gradient=weight_gradient,
            bias_gradient=bias_gradient, threads=torch.get_num_threads(),
        )  # fmt: skip
        if weight is not None and ctx.collected is not None:
            for key, of_images in zip(ctx.keys, sample_gradients, strict=True):
                ctx.collected.add(key, of_images.T[: ctx.collected.count])
        return x_gradient, weight_gradient, bias_gradient, residual_gradient, None, None


def _batch_last(x: Tensor) -> Tensor:
    """``x [B, C, H, W]``, in memory as ``[H, W, C, B]``."""
    count, channels, _, width = x.shape
    if x.stride() == (1, count, width * channels * count, channels * count):
        return x
    return x.permute(2, 3, 1, 0).contiguous().permute(3, 2, 0, 1)


def _without_padding(y: Tensor, count: int) -> Tensor:
    return y if y.shape[0] == count else y[:count]


@functools.lru_cache(maxsize=1024)
def _convolution_sizes(
    x: torch.Size, y: torch.Size, kernel: int, stride: int, padding: int
) -> Sizes:
    return _kernels().sizes("ConvolutionSizes")(
        height=x[2], width=x[3], inputs=x[1], out_height=y[2], out_width=y[3], outputs=y[1],
        kernel=kernel, stride=stride, padding=padding, batch=x[0],
    )  # fmt: skip


@functools.lru_cache(maxsize=1024)
def _norm_sizes(x: torch.Size) -> Sizes:
    return _kernels().sizes("NormSizes")(pixels=x[2] * x[3], channels=x[1], batch=x[0])
