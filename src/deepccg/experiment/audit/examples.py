"""Finding examples of the stream among values of any shape, by their hashes."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[Any]  # numbers of any type
Words = NDArray[np.uint64]

_CHUNK = 1 << 15  # windows that are searched at a time
_ROWS = 32  # examples that are hashed at a time
_FACTOR = 0x9E3779B97F4A7C15  # of the rolling hash: odd, so that it has an inverse modulo 2^64
_PREFIX = np.uint64(64 - 20)  # the first 20 bits of a hash are looked up first
_SAMPLED = 256  # numbers that show whether floats are bytes
_NEAR = 0.02  # of an integer: how near such floats are
_SCALES = ((1.0, 0.0), (255.0, 0.0), (127.5, 127.5))  # of floats, and what to add, to get bytes


class ExampleIndex:
    """Remembers examples by their values and finds them among others.

    Copies of one example count once. Bytes kept as floats are recognised if they were converted,
    divided by 255 or scaled to [-1, 1]; a row of one value only (a free slot) is never an example.
    Examples lie along the last axes or the first, with channels first or last, or, as behind the
    header of a file or beside a label, anywhere among values that follow each other.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._shape, self._size = tuple(shape), math.prod(shape)
        self._known: set[int] = set()
        self._rolling: set[int] = set()  # another hash of each, which is fast for all windows
        self._prefixes = np.zeros(1 << 20, dtype=np.bool_)
        self._bytes = True

    def add(self, x: Tensor) -> set[int]:
        """Remember these examples, ``[B, ...]``; return their hashes."""
        self._bytes = not x.is_floating_point()
        rows = _canonical(x.detach().reshape(-1, self._size).cpu().numpy())
        hashes = set(_hashes(rows))
        self._known |= hashes
        for few in np.split(rows, range(_ROWS, len(rows), _ROWS)):
            rolling = (_words(few) * _powers(self._size)[0]).sum(axis=1, dtype=np.uint64)
            self._rolling.update(rolling.tolist())
            self._prefixes[rolling >> _PREFIX] = True
        return hashes

    def found_in(self, held: Iterable[Values]) -> set[int]:
        """Return the hashes of the known examples among the values ``held``."""
        found: set[int] = set()
        for values in held:
            if values.size < self._size:
                continue
            layouts = list(self._layouts(values))
            for rows in layouts:
                found.update(hash_ for each in self._decoded(rows) for hash_ in _hashes(each))
            if not layouts or values.ndim == 1:
                for row in self._decoded(values.reshape(-1), only_likely=True):
                    found.update(self._found_anywhere(row))
        return found & self._known

    def _layouts(self, values: Values) -> Iterator[Values]:
        """Views ``[N, size]`` of values whose axes, or whose number, are those of examples."""
        shape, size, ndim = values.shape, self._size, values.ndim
        last = size in (math.prod(shape[axis:]) for axis in range(ndim))
        if last and len(self._shape) == 3 and shape[-3:] == (*self._shape[1:], self._shape[0]):
            yield np.moveaxis(values, -1, -3).reshape(-1, size)
        if last or (ndim == 1 and len(values) % size == 0):
            yield values.reshape(-1, size)
        if size in (math.prod(shape[:axis]) for axis in range(1, ndim)):
            yield values.reshape(size, -1).T

    def _decoded(self, values: Values, only_likely: bool = False) -> Iterator[Values]:
        """The values as examples may have come: bytes, or float32."""
        floats = values.dtype.kind == "f"
        if self._bytes and floats:
            for scale, shift in _SCALES:
                if not only_likely or _like_bytes(values, scale, shift):
                    scaled = values * np.float32(scale) + np.float32(shift)
                    # Of fmax and fmin, unlike clip, NaN becomes a number.
                    yield np.rint(np.fmin(np.fmax(scaled, 0), 255)).astype(np.uint8)
        elif self._bytes or floats:
            yield _canonical(values)

    def _found_anywhere(self, values: Values) -> Iterator[int]:
        """Hashes of windows of ``values`` that are, almost certainly, examples."""
        size = self._size
        for start in range(0, len(values) - size + 1, _CHUNK):
            words = _words(values[start : start + _CHUNK + size - 1])
            factors, inverses = _powers(len(words))
            sums = np.zeros(len(words) + 1, dtype=np.uint64)
            np.cumsum(words * factors, out=sums[1:])
            rolling = (sums[size:] - sums[:-size]) * inverses[: len(words) - size + 1]
            likely = np.flatnonzero(self._prefixes[rolling >> _PREFIX])
            for i, found in zip(likely + start, rolling[likely].tolist(), strict=True):
                if found in self._rolling:
                    yield hash(values[i : i + size].tobytes())


def _like_bytes(values: Values, scale: float, shift: float) -> bool:
    """Whether most of some of the floats become 0 to 255."""
    sample = values[:: max(1, len(values) // _SAMPLED)].astype(np.float64) * scale + shift
    near = np.abs(sample - sample.round()) < _NEAR
    return 2 * int((near & (sample > -1) & (sample < 256)).sum()) > len(sample)


def _canonical(values: Values) -> Values:
    """One precision for all floats (and one zero), bytes for all integers."""
    if values.dtype.kind == "f":
        return values.astype(np.float32) + np.float32(0)
    return values.astype(np.uint8, copy=False)


def _hashes(rows: Values) -> list[int]:
    if not len(rows):
        return []
    rows = np.ascontiguousarray(rows)
    varied = (rows != rows[:, :1]).any(axis=1)
    return [hash(row.tobytes()) for row in (rows if varied.all() else rows[varied])]


def _words(values: Values) -> Words:
    """Bytes, or the bits of float32, as numbers that can be multiplied."""
    return (values.view(np.uint32) if values.dtype.kind == "f" else values).astype(np.uint64)


def _powers(count: int) -> tuple[Words, Words]:
    """``_FACTOR`` to the power of 0 to ``count`` - 1 modulo 2^64, and their inverses."""
    factors, inverses = _many_powers(count.bit_length())
    return factors[:count], inverses[:count]


@lru_cache(maxsize=32)
def _many_powers(bits: int) -> tuple[Words, Words]:
    def powers(factor: int) -> Words:
        factors = np.full(1 << bits, factor, dtype=np.uint64)
        factors[0] = 1
        return np.cumprod(factors, dtype=np.uint64)

    return powers(_FACTOR), powers(pow(_FACTOR, -1, 1 << 64))
