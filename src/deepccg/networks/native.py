"""Instance normalisation as one native kernel, compiled once per machine.

PyTorch normalises channels-last images slowly, and convolves others slowly: a network of its own
operations pays for one or the other. The kernel in ``instance_norm.cpp`` takes away that choice.
It is 130 lines that a C++ compiler turns into a library in about a second, kept in the cache
directory for all later processes. It knows no fixed sizes: nothing is ever compiled twice.
"""

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess  # runs the compiler, on a file of this package
import tempfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepccg.core import default_cache_dir

_SOURCE = Path(__file__).with_name("instance_norm.cpp")
_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fopenmp")
# One instruction set for all machines that have it, so that they agree in the last digit.
_VECTORS = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx2", "-mfma")}
_PATIENCE = 120  # seconds

_log = logging.getLogger(__name__)


class Kernels:
    """The compiled functions; tensors are float32 on the CPU, images channels-last."""

    def __init__(self, library: ctypes.CDLL) -> None:
        pointer, size = ctypes.c_void_p, ctypes.c_int64
        self._forward = library.instance_norm
        self._forward.argtypes = [pointer] * 6 + [size] * 3 + [ctypes.c_float, ctypes.c_int]
        self._forward.restype = None
        self._backward = library.instance_norm_gradient
        self._backward.argtypes = [pointer] * 8 + [size] * 3 + [ctypes.c_int]
        self._backward.restype = None

    def normalise(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        """Normalised ``x [B, C, H, W]``, and means and inverse deviations ``[2, B, C]``."""
        y = torch.empty_like(x)
        moments = x.new_empty(2, *x.shape[:2])
        self._forward(
            *_addresses(x, weight, bias, y, *moments),
            *_sizes(x),
            epsilon,
            torch.get_num_threads(),
        )
        return y, moments

    def gradients(
        self, gradient: Tensor, x: Tensor, weight: Tensor | None, moments: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of ``x``, and of weight and bias for each image by itself, ``[2, B, C]``."""
        of_x, of_affine = torch.empty_like(x), torch.empty_like(moments)
        self._backward(
            *_addresses(gradient, x, weight, *moments, of_x, *of_affine),
            *_sizes(x),
            torch.get_num_threads(),
        )
        return of_x, of_affine


class _InstanceNorm(torch.autograd.Function):
    """``Kernels`` for autograd."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float
    ) -> Tensor:
        """``[B, C, H, W] -> [B, C, H, W]``, channels-last."""
        x = x.contiguous(memory_format=torch.channels_last)
        y, moments = _loaded().normalise(x, weight, bias, epsilon)
        ctx.save_for_backward(x, weight, moments)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of ``x``, weight and bias."""
        x, weight, moments = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        of_x, of_affine = _loaded().gradients(gradient, x, weight, moments)
        if weight is None:
            return of_x, None, None, None
        of_weight, of_bias = of_affine.sum(dim=1)
        return of_x, of_weight, of_bias, None


def instance_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, epsilon: float) -> Tensor:
    """``x [B, C, H, W]``, each channel of each image normalised, channels-last, with gradient."""
    y: Tensor = _InstanceNorm.apply(x, weight, bias, epsilon)  # type: ignore[no-untyped-call]  # PyTorch's
    return y


def why_not() -> str | None:
    """Why there are no kernels, in a few words; ``None`` if there are."""
    found = _found()
    return found if isinstance(found, str) else None


def _loaded() -> Kernels:
    found = _found()
    assert isinstance(found, Kernels)  # noqa: S101  (a network asks before it uses them)
    return found


@functools.cache
def _found() -> Kernels | str:
    compiler = next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), *_COMPILERS])), None)
    if compiler is None:
        return "no C++ compiler was found"
    command = [compiler, *_FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ())]
    try:
        return Kernels(ctypes.CDLL(str(_library(command))))
    except subprocess.SubprocessError as error:
        _log.debug("%s", getattr(error, "stderr", error))
        return f"{Path(compiler).name} could not compile the kernels"
    except OSError as error:
        return f"the compiled kernels cannot be kept or loaded: {error.strerror or error}"


def _library(command: list[str]) -> Path:
    """The compiled library, from the cache if it is there."""
    text = _SOURCE.read_bytes() + "\0".join(command).encode()
    directory = default_cache_dir() / "kernels"
    library = directory / f"instance_norm-{hashlib.blake2b(text, digest_size=8).hexdigest()}.so"
    if not library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=directory) as scratch:
            built = Path(scratch) / "library.so"
            subprocess.run(  # noqa: S603  (a compiler that the user has chosen or installed)
                [*command, "-o", str(built), str(_SOURCE)],
                check=True,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
            )
            built.replace(library)  # whole or not at all, also with several processes at once
    return library


def _addresses(*tensors: Tensor | None) -> list[int | None]:
    return [None if tensor is None else tensor.data_ptr() for tensor in tensors]


def _sizes(x: Tensor) -> tuple[int, int, int]:
    images, channels, height, width = x.shape
    return images, height * width, channels
