"""The network's operations as native kernels; they know no fixed sizes."""

import ctypes
import functools
from pathlib import Path
from typing import Any

from deepccg.core.native import compiled

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
    return compiled("network", _SOURCES, _FUNCTIONS, headers=[_HERE / "lanes.h"])
