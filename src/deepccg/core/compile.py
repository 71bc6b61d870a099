"""C++ kernels: found or compiled, checked, and called by the names of their parameters.

A kernel is declared with ``KERNEL`` of ``kernel.h``, which puts its signature into the library. It
is written there and nowhere else: ``KernelLibrary`` reads it, so a call cannot mix up arguments.
"""

import ctypes
import functools
import logging
import os
import stat
import subprocess  # for its errors
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from deepccg.atomic import temporary_directory
from deepccg.core.cache_dir import default_cache_dir, make_directory, untrusted_reason
from deepccg.kernel_build import (
    AVX2,
    CARRIED,
    FLAGS,
    file_name,
    find_compiler,
    kernel_sources,
    library_name,
    run_compiler,
)

_PACKAGE = Path(__file__).parents[1]
_VECTORS = {"AVX2": AVX2, "AVX512": AVX2}  # for each capability of PyTorch's
_TOLERANCE = 1e-4  # of the self-test: far above rounding, far below a wrong result

_log = logging.getLogger(__name__)

# Called with an argument for each parameter of the C++ declaration, by name; results go into them.
Kernel = Callable[..., None]
# A kernel's name, what it computed, and what it should have computed.
Check = tuple[str, Sequence[Tensor], Sequence[Tensor]]
SelfTest = Callable[["KernelLibrary"], Iterable[Check]]


class Sizes(ctypes.Structure):
    """Integers that a kernel takes as one argument, set by name and all of them."""

    def __init__(self, **values: int) -> None:
        fields = [field[0] for field in self._fields_]
        if values.keys() != set(fields):
            raise TypeError(f"{type(self).__name__} has {fields}, got {list(values)}")
        super().__init__(**values)


class KernelLibrary(dict[str, Kernel]):
    """The kernels of a compiled library by name: ``library["name"](parameter=value, ...)``.

    The parameters are those of the C++ declaration. A pointer takes a CPU tensor or a C-contiguous
    array of the declared type, or ``None``; everything else is a ``ctypes.ArgumentError``.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._library = ctypes.CDLL(str(path))

    def __missing__(self, name: str) -> Kernel:
        types = dict(map(self._parameter, self._declaration(f"{name}_signature")))
        prototype = ctypes.CFUNCTYPE(None, *types.values())
        self[name] = prototype((name, self._library), tuple((1, own) for own in types))
        return self[name]

    def _parameter(self, declared: str) -> tuple[str, Any]:
        """Name and ``ctypes`` type of a parameter such as ``const float* images``."""
        *_, kind, name = declared.split(" ")
        if not kind.endswith("*"):
            return name, _SCALARS[kind]
        kind = kind.removesuffix("*")
        return name, _POINTERS.get(kind) or ctypes.POINTER(self.sizes(kind))

    def sizes(self, name: str) -> type[Sizes]:
        """The struct of this name, declared with ``KERNEL_SIZES``."""
        return _sizes_type(name, self._declaration(f"{name}_fields"))

    def _declaration(self, function_name: str) -> tuple[str, ...]:
        """A kernel's parameters or a struct's fields, as the library has them."""
        function = self._library[function_name]
        function.restype = ctypes.c_char_p
        return tuple(function().decode().split(", "))


class _Pointer:
    """A type of argument: the address of the numbers of a tensor or an array."""

    def __init__(self, dtype: torch.dtype) -> None:
        self._dtype, self._array_dtype = dtype, torch.empty(0, dtype=dtype).numpy().dtype

    def from_param(self, value: Any) -> ctypes.c_void_p | None:  # called by ctypes
        if isinstance(value, Tensor):
            if value.dtype is self._dtype and value.is_cpu:
                return ctypes.c_void_p(value.data_ptr())
        elif isinstance(value, np.ndarray):
            if value.dtype == self._array_dtype and value.flags.c_contiguous:
                return ctypes.c_void_p(value.__array_interface__["data"][0])
        elif value is None:
            return None
        given = f"{type(value).__name__} of {getattr(value, 'dtype', 'no numbers')}"
        raise TypeError(f"{self._dtype} on the CPU is needed, not {given}")


_POINTERS = {
    "float": _Pointer(torch.float32),
    "double": _Pointer(torch.float64),
    "int64_t": _Pointer(torch.int64),
    "uint8_t": _Pointer(torch.bool),
}
_SCALARS = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "int64_t": ctypes.c_int64,
}


@functools.cache  # one type for one declaration, whichever library it comes from
def _sizes_type(name: str, fields: tuple[str, ...]) -> type[Sizes]:
    return type(name, (Sizes,), {"_fields_": [(field, ctypes.c_int64) for field in fields]})


def load_kernels(room: Path, self_test: SelfTest) -> KernelLibrary | str:
    """Return a room's compiled kernels, or in a few words why they cannot be used.

    Those that the package carries, if they are for this processor; else those of the cache, where
    a compiler puts them.

    Args:
        room: The directory of the C++ files.
        self_test: Calls each kernel on a small problem.
    """
    flags = (*FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ()))
    carried = _carried_kernels(room, flags, self_test)
    if not isinstance(carried, str):
        return carried
    _log.debug("%s", carried)
    compiler = find_compiler()
    if compiler is None:
        return "no C++ compiler was found"
    try:
        return _tested(_cached_build(room, [compiler, *flags]), self_test)
    except subprocess.SubprocessError as error:
        _log.debug("%s", (getattr(error, "stderr", None) or b"").decode(errors="replace") or error)
        return f"{Path(compiler).name} could not compile the kernels"
    except _Untrusted as error:
        warnings.warn(f"compiled kernels are not used, as {error}", stacklevel=1)  # once for all
        return "the compiled kernels are not trusted"
    except OSError as error:
        return _cannot_load(error)


def _tested(path: Path, self_test: SelfTest) -> KernelLibrary | str:
    library = KernelLibrary(path)
    return _failure(library, self_test) or library


def _cannot_load(error: OSError) -> str:
    return f"the compiled kernels cannot be kept or loaded: {error.strerror or error}"


def _carried_kernels(room: Path, flags: Sequence[str], self_test: SelfTest) -> KernelLibrary | str:
    """Return the kernels that came with the package, or why they cannot be used.

    Their library is trusted as the code beside which it lies: who may write there may change what
    Python imports. So neither it nor its directory may have another owner than that code, nor be
    easier to write.
    """
    directory, code = _PACKAGE / CARRIED, _PACKAGE / "core" / "compile.py"
    try:
        library = _whole_library(directory, library_name(room, flags))
        if library is None:
            return "the package carries no kernels for this processor"
        if not (_as_safe(library, code) and _as_safe(directory, _PACKAGE)):
            return f"{library} is not as safe as the package's code"
        return _tested(library, self_test)
    except OSError as error:
        return _cannot_load(error)


def _as_safe(path: Path, code: Path) -> bool:
    own, right = path.lstat(), code.stat()
    others = (stat.S_IWGRP | stat.S_IWOTH) & ~right.st_mode
    return own.st_uid in (0, right.st_uid) and not own.st_mode & others


class _Untrusted(Exception):
    """Somebody else may have put the library there."""


def _cached_build(room: Path, command: list[str]) -> Path:
    """Return the library's file, compiled unless the cache has it whole."""
    name = library_name(room, command)
    directory = default_cache_dir() / "kernels"
    make_directory(directory)
    directory = directory.resolve()
    _require_trust(directory)
    for library in directory.glob(f"{name}-*.so"):
        _require_trust(library)
    return _whole_library(directory, name) or _compile(name, command, room, directory)


def _whole_library(directory: Path, name: str) -> Path | None:
    """Return the file in ``directory`` whose content is what its name says."""
    for library in directory.glob(f"{name}-*.so"):
        if library.is_file() and library.name == file_name(name, library.read_bytes()):
            return library
    return None


def _require_trust(path: Path) -> None:
    reason = untrusted_reason(path)
    if reason is not None:
        raise _Untrusted(reason)


def _compile(name: str, command: list[str], room: Path, directory: Path) -> Path:
    """Compile the library into ``directory``: it is there whole or not at all."""
    with temporary_directory(directory / name, 0o700) as scratch:
        built = scratch / "library.so"
        run_compiler([*command, "-o", built, *kernel_sources(room)], scratch)
        with built.open("rb") as file:
            library = directory / file_name(name, file.read())
            os.fsync(file.fileno())
        built.chmod(0o644)  # whatever the umask is
        built.replace(library)
    return library


def _failure(library: KernelLibrary, self_test: SelfTest) -> str | None:
    """Run the self-test; return in a few words what failed, ``None`` if nothing did."""
    try:
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller's mode is
            for name, results, expected in self_test(library):
                for result, right in zip(results, expected, strict=True):
                    if not torch.allclose(result.double(), right.double(), _TOLERANCE, _TOLERANCE):
                        return f"the compiled {name} does not compute what PyTorch computes"
    except (AttributeError, KeyError, TypeError, ctypes.ArgumentError) as error:
        return f"the compiled kernels do not have the expected parameters: {error}"
    return None
