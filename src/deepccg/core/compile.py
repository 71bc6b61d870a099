"""Where on this machine things are kept that can be made again."""

import ctypes
import hashlib
import logging
import os
import shutil
import subprocess  # runs the compiler, on files of this package
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_COMPILERS = ("g++", "c++", "clang++")
_FLAGS = ("-O3", "-std=c++17", "-shared", "-fPIC", "-fopenmp")
# One instruction set for all machines that have it, so that they agree in the last digit.
_VECTORS = {"AVX2": ("-mavx2", "-mfma"), "AVX512": ("-mavx2", "-mfma")}
_PATIENCE = 120  # seconds

_log = logging.getLogger(__name__)


def compiled(
    name: str,
    sources: Sequence[Path],
    functions: Mapping[str, list[Any]],
    headers: Sequence[Path] = (),
) -> ctypes.CDLL | str:
    """The compiled functions, or in a few words why there are none.

    Args:
        name: What the library is called.
        sources: The files to compile.
        functions: The arguments of each function, as ``ctypes`` names them; none returns anything.
        headers: What the files include of this package.
    """
    compiler = next(filter(None, map(shutil.which, [os.environ.get("CXX", ""), *_COMPILERS])), None)
    if compiler is None:
        return "no C++ compiler was found"
    command = [compiler, *_FLAGS, *_VECTORS.get(torch.backends.cpu.get_cpu_capability(), ())]
    try:
        library = ctypes.CDLL(str(_built(name, command, sources, headers)))
    except subprocess.SubprocessError as error:
        _log.debug("%s", getattr(error, "stderr", error))
        return f"{Path(compiler).name} could not compile the kernels"
    except OSError as error:
        return f"the compiled kernels cannot be kept or loaded: {error.strerror or error}"
    for function_name, arguments in functions.items():
        function = library[function_name]
        function.argtypes, function.restype = arguments, None
        setattr(library, function_name, function)
    return library


def _built(name: str, command: list[str], sources: Sequence[Path], headers: Sequence[Path]) -> Path:
    """The library's file, from the cache if it is there."""
    texts = [path.read_bytes() for path in [*headers, *sources]]
    texts.append("\0".join(command).encode())
    digest = hashlib.blake2b(b"\0".join(texts), digest_size=8).hexdigest()
    directory = default_cache_dir() / "kernels"
    library = directory / f"{name}-{digest}.so"
    if not library.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".partial-", dir=directory) as scratch:
            built = Path(scratch) / "library.so"
            subprocess.run(  # noqa: S603  (a compiler that the user has chosen or installed)
                [*command, "-o", str(built), *map(str, sources)],
                check=True,
                capture_output=True,
                text=True,
                timeout=_PATIENCE,
            )
            built.replace(library)  # whole or not at all, also with several processes at once
    return library


def default_cache_dir() -> Path:
    """``$DEEPCCG_CACHE``, or ``deepccg`` in the user's cache directory."""
    if os.environ.get("DEEPCCG_CACHE"):
        return Path(os.environ["DEEPCCG_CACHE"]).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "deepccg"
