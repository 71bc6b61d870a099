"""What an object holds: every tensor it can reach, whatever it says it keeps."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from types import FunctionType, ModuleType

import numpy as np
import torch
from torch import Tensor

_LEAVES = (int, float, complex, str, type(None), type, FunctionType, ModuleType)
_SEQUENCES = (list, tuple, set, frozenset, deque)


def tensors_within(*things: object) -> Iterator[Tensor]:
    """Every tensor reachable through attributes, mappings and sequences, each object once.

    NumPy arrays of numbers and raw bytes come as tensors, too. What hides in a closure, in a
    module or in Python numbers is not found.
    """
    waiting: list[object] = list(things)
    visited: set[int] = set()
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, _LEAVES) or id(thing) in visited:
            continue
        visited.add(id(thing))
        tensor = _as_tensor(thing)
        if tensor is not None:
            yield tensor
        else:
            waiting.extend(_parts(thing))


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Bytes of all storages behind the tensors; views of one storage count once."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _as_tensor(thing: object) -> Tensor | None:
    if isinstance(thing, Tensor):
        return thing.detach()
    if isinstance(thing, bytes | bytearray) and thing:
        return torch.from_numpy(np.frombuffer(thing, dtype=np.uint8).copy())
    if isinstance(thing, np.ndarray) and thing.dtype.kind in "biuf" and thing.size:
        return torch.as_tensor(thing if thing.flags.writeable else thing.copy())
    return None


def _parts(thing: object) -> Iterable[object]:
    if isinstance(thing, Mapping):
        return thing.values()
    if isinstance(thing, _SEQUENCES):
        return thing
    slots = [name for kind in type(thing).__mro__ for name in _slots(kind)]
    return [getattr(thing, "__dict__", None), *(getattr(thing, name, None) for name in slots)]


def _slots(kind: type) -> tuple[str, ...]:
    names = vars(kind).get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)
