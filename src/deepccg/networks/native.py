"""The network's operations as native kernels, compiled once per machine.

The kernels (``convolution.cpp``, ``instance_norm.cpp``) know no fixed sizes: a C++ compiler makes a
library of them in a few seconds, which is kept in the cache directory for all later processes.
Nothing is ever compiled twice.
"""

import ctypes
import functools
import hashlib
import logging
import os
import shutil
import subprocess  # runs the compiler, on files of this package
import tempfile
from pathlib import Path
from typing import Any

import torch

from deepccg.core import default_cache_dir

_HERE = Path(__file__).parent
_SOURCES = [_HERE / name for name in ("convolution.cpp", "instance_norm.cpp")]
_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fopenmp")
# One instruction set for all machines that have it, so that they agree in the last digit.
_VECTORS = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx2", "-mfma")}
_PATIENCE = 120  # seconds

_POINTER, _INT = ctypes.c_void_p, ctypes.c_int
_FUNCTIONS: dict[str, list[Any]] = {
    "convolve": [_POINTER] * 4 + [_INT],
    "convolve_back": [_POINTER] * 4 + [_INT],
    "convolve_weights": [_POINTER] * 4 + [ctypes.c_int64, _INT],
    "instance_norm": [_POINTER] * 7 + [ctypes.c_float] + [_INT] * 2,
    "instance_norm_back": [_POINTER] * 11 + [_INT],
}

_log = logging.getLogger(__name__)


def why_not() -> str | None:
    """Why there are no kernels, in a few words; ``None`` if there are."""
    found = _found()
    return found if isinstance(found, str) else None


def kernels() -> ctypes.CDLL:
    """The compiled functions; who asks for them has asked ``why_not`` before."""
    found = _found()
    assert not isinstance(found, str)  # noqa: S101  (see above)
    return found


@functools.cache
def _found() -> ctypes.CDLL | str:
    compiler = next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), *_COMPILERS])), None)
    if compiler is None:
        return "no C++ compiler was found"
    command = [compiler, *_FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ())]
    try:
        library = ctypes.CDLL(str(_library(command)))
    except subprocess.SubprocessError as error:
        _log.debug("%s", getattr(error, "stderr", error))
        return f"{Path(compiler).name} could not compile the kernels"
    except OSError as error:
        return f"the compiled kernels cannot be kept or loaded: {error.strerror or error}"
    for name, arguments in _FUNCTIONS.items():
        function = library[name]
        function.argtypes, function.restype = arguments, None
        setattr(library, name, function)
    return library


def _library(command: list[str]) -> Path:
    """The compiled library, from the cache if it is there."""
    texts = [path.read_bytes() for path in [_HERE / "lanes.h", *_SOURCES]]
    texts.append("\0".join(command).encode())
    name = hashlib.blake2b(b"\0".join(texts), digest_size=8).hexdigest()
    directory = default_cache_dir() / "kernels"
    library = directory / f"network-{name}.so"
    if not library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=directory) as scratch:
            built = Path(scratch) / "library.so"
            subprocess.run(  # noqa: S603  (a compiler that the user has chosen or installed)
                [*command, "-o", str(built), *map(str, _SOURCES)],
                check=True,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
            )
            built.replace(library)  # whole or not at all, also with several processes at once
    return library
