"""Reading what an object holds as arrays, whatever kind of object it is."""

import base64
import contextlib
import io
import math
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from deepccg.experiment.audit.examples import Values
from deepccg.experiment.audit.own_code import SHARED, root_module

# ``held`` values count as bytes; a ``copy`` does unless what it was made from is held and found as
# well; ``decoded`` ones (a text as what it stands for, what lies on a disk) do not.
Form = Literal["held", "copy", "decoded"]
Read = Iterator[tuple[Values, Form]]

_TEXT = 64  # characters: shorter texts hold no image
_COUNTED_TEXT = 1024  # characters: shorter texts are names and messages
_LARGEST = 1 << 28  # bytes of a file, or of what has to be copied, that are read
_NUMBER = re.compile(r"-?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_DEPTH = 8  # of lists of lists of numbers
_PICKLING = ("__reduce__", "__reduce_cython__", "__getstate__")


def reader_of(thing: object) -> Callable[[Any], Read] | None:
    """Return what reads things of this thing's class; ``None`` if they have nothing to read."""
    kind = type(thing)
    for kinds, reader in _READERS:
        if issubclass(kind, kinds):
            return reader
    if "sqlite3.Connection" in (f"{each.__module__}.{each.__name__}" for each in kind.__mro__):
        return _data_base
    if hasattr(kind, "toarray"):
        return _sparse_matrix
    if hasattr(kind, "__array_interface__") or hasattr(kind, "__array__"):
        return _like_an_array
    try:
        memoryview(thing)  # type: ignore[arg-type]  # that is the question
    except TypeError:
        return None
    except (BufferError, ValueError):
        pass  # a buffer, but not now
    return _buffer


def pickles_itself(kind: type) -> bool:
    """Whether this is a compiled class that says itself what to save of its objects."""
    for each in kind.__mro__:
        if root_module(each) in SHARED:
            continue
        ways = [vars(each)[name] for name in _PICKLING if name in vars(each)]
        if ways and not any(isinstance(way, FunctionType) for way in ways):
            return True
    return False


def numbers_in(values: Iterable[Any]) -> Values | None:
    """Return lists of lists ... of numbers as one array; ``None`` if they hold anything else."""
    try:
        flat = np.array(list(_flat(values, _DEPTH)), dtype=np.float64)
    except (OverflowError, TypeError):
        return None
    return flat if len(flat) else None


def _flat(values: Iterable[Any], depth: int) -> Iterator[float]:
    for value in values:
        kind = type(value)
        if kind is int or kind is float or kind is bool or issubclass(kind, np.number):
            yield value
        elif depth and kind in (list, tuple, deque):
            yield from _flat(value, depth - 1)
        else:
            raise TypeError


def read_tensor(tensor: Tensor) -> Read:
    """Yield a tensor's values and, if it is a view, those of its whole storage."""
    if tensor.layout != torch.strided:
        yield from _sparse(tensor)
        return
    if tensor.device.type == "meta":
        return
    if 0 not in tensor.stride():  # else it repeats values, without end perhaps
        yield _plain(tensor.detach()), "held"
    storage = tensor.untyped_storage()
    if storage.nbytes() != tensor.nbytes:  # a view
        whole = storage.nbytes() // tensor.itemsize
        yield _plain(tensor.detach().new_empty(0).set_(storage, 0, (whole,), (1,))), "held"


def _sparse(tensor: Tensor) -> Read:
    coordinates = tensor.layout == torch.sparse_coo
    own = (tensor._indices(), tensor._values()) if coordinates else (tensor.values(),)
    for each in own:
        yield _plain(each.detach()), "held"
    if tensor.numel() < _LARGEST:
        yield _plain(tensor.detach().to_dense()), "decoded"


def _plain(tensor: Tensor) -> Values:
    values = tensor.cpu().resolve_conj().resolve_neg()
    if values.is_complex():
        values = torch.view_as_real(values)
    if values.is_floating_point() and values.itemsize < 4:
        values = values.float()
    return values.numpy()


def _storage(storage: Any) -> Read:
    untyped = getattr(storage, "_untyped_storage", storage)  # of a TypedStorage
    yield from read_tensor(torch.empty(0, dtype=torch.uint8, device=untyped.device).set_(untyped))


def _array(array: np.ndarray[Any, Any]) -> Read:
    if 0 in array.strides:
        return  # values that are repeated; what holds them is read by itself
    if array.dtype.names is not None:
        for name in array.dtype.names:
            yield from _array(array[name])
    elif array.dtype.kind in "biuf":
        yield array, "held"
    elif array.dtype.kind == "U":
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint32), "held"
    elif array.dtype.kind != "O" and array.size:
        yield np.ascontiguousarray(array).reshape(-1).view(np.uint8), "held"


def _text(text: str) -> Read:
    if len(text) < _TEXT:
        return
    latin = text.isascii() or max(text) < "\u0100"
    raw = text.encode("latin-1") if latin else text.encode("utf-8", "surrogatepass")
    yield np.frombuffer(raw, dtype=np.uint8), "held" if len(text) >= _COUNTED_TEXT else "decoded"
    if not text.isascii():
        return
    for decode in (bytes.fromhex, _from_base64):
        with contextlib.suppress(ValueError):
            yield np.frombuffer(decode(text), dtype=np.uint8), "decoded"
    yield np.array(_NUMBER.findall(text), dtype=np.float64), "decoded"


def _from_base64(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _memory_file(file: io.BytesIO | io.StringIO) -> Read:
    if not file.closed:
        held = file.getvalue()
        yield from _text(held) if isinstance(held, str) else _buffer(held)


def _file(file: io.IOBase) -> Read:
    """What an open file that is written to holds by now."""
    if file.closed or not file.writable():
        return
    file.flush()
    if not isinstance(file, io.FileIO):
        return  # it leads to one
    descriptor = file.fileno()
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        with Path(f"/proc/self/fd/{descriptor}").open("rb") as again:
            yield np.frombuffer(again.read(_LARGEST), dtype=np.uint8), "decoded"


def _data_base(connection: Any) -> Read:
    yield from _buffer(connection.serialize())


def _like_an_array(thing: Any) -> Read:
    if getattr(thing, "nbytes", 0) > _LARGEST:
        return  # on a disk, most likely
    for values, _ in _array(np.asarray(thing)):
        yield values, "copy"


def _sparse_matrix(matrix: Any) -> Read:
    if math.prod(matrix.shape) < _LARGEST:
        for values, _ in _array(matrix.toarray()):
            yield values, "decoded"


def _buffer(thing: Any) -> Read:
    yield from _array(np.asarray(memoryview(thing)))


_READERS: tuple[tuple[tuple[type, ...], Callable[[Any], Read]], ...] = (
    ((Tensor,), read_tensor),
    ((torch.UntypedStorage, torch.TypedStorage), _storage),
    ((np.ndarray,), _array),
    ((str,), _text),
    ((io.BytesIO, io.StringIO), _memory_file),
    ((io.IOBase,), _file),
)
