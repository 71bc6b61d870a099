"""What an audit measures: tensors in reach, stored examples and bytes, passes of the network."""

import gc
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _functorch  # no public way to see how many examples vmap carries

from deepccg.core import Learner, MemoryUsage, State

Phase = Literal["learning", "evaluation", "audit"]

_LEAVES = (type, FunctionType, ModuleType)  # from these one reaches everything
_GENERATOR = torch.Generator().get_state().shape  # of a saved generator's bytes
_GENERATORS = 4  # so many generators need not be declared
_ALLOWANCE = 8192  # bytes for counters, the method's fields, derived scalars
_VECTORS_PER_CLASS = 2  # of the embedding's size, such as class means, kept beside a head


def reachable_tensors(*things: object) -> Iterator[Tensor]:
    """Yield every tensor reachable through attributes and containers of any kind, each once.

    NumPy arrays of numbers and raw bytes are converted to tensors. What hides in a closure, in a
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
            waiting.extend(gc.get_referents(thing))


def tensor_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of all storages behind the tensors; views of one storage count once."""
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


class ExampleIndex:
    """Remembers examples by their values and finds them in other tensors.

    Copies of one example count once. Bytes kept as floats are recognised if they were converted,
    divided by 255 or scaled to [-1, 1]; a row of one value only (a free slot) is never an example.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        self._size = math.prod(shape)
        self._known: set[int] = set()
        self._bytes = True

    def add(self, x: Tensor) -> None:
        """Remember these examples, ``[B, ...]``."""
        self._bytes = not x.is_floating_point()
        self._known.update(_hashes(_canonical(x.reshape(-1, self._size))))

    def found_in(self, tensors: Iterable[Tensor]) -> set[int]:
        """Return the known examples among the rows of ``tensors``, as hashes."""
        hashes = {
            row
            for tensor in tensors
            if self._could_hold(tensor)
            for rows in self._decoded(tensor.detach().reshape(-1, self._size))
            for row in _hashes(rows)
        }
        return hashes & self._known

    def _could_hold(self, tensor: Tensor) -> bool:
        """Whether the last axes make up one example, or all of it is a row of examples."""
        if tensor.numel() < self._size or tensor.is_complex():
            return False
        sizes = (math.prod(tensor.shape[axis:]) for axis in range(tensor.ndim))
        whole = tensor.ndim == 1 and tensor.numel() % self._size == 0
        return whole or self._size in sizes

    def _decoded(self, rows: Tensor) -> Iterator[Tensor]:
        if self._bytes and rows.is_floating_point():
            for values in (rows, rows * 255, rows * 127.5 + 127.5):
                yield values.nan_to_num().round().clamp(0, 255).to(torch.uint8)
        elif self._bytes or rows.is_floating_point():
            yield _canonical(rows)


@dataclass(frozen=True)
class Held:
    """What a learner's saved state holds in addition to network, head and generators."""

    examples: int = 0  # distinct ones of the stream, or what the learner declares if that is more
    bytes: dict[str, int] = field(default_factory=dict)  # by kind, as the learner declares them
    unnamed_bytes: int = 0  # of its state, not declared


@dataclass(frozen=True)
class StorageLimits:
    """How much a learner may store."""

    budget: int  # examples
    network: int  # bytes of the network it was given
    classes: int  # of the stream
    dim: int  # size of the embedding
    itemsize: int  # bytes per number of the network

    @property
    def model(self) -> int:
        """Bytes of network and one linear head."""
        return self.network + self.classes * (self.dim + 1) * self.itemsize

    @property
    def allowance(self) -> int:
        """Bytes that need not be declared."""
        return _ALLOWANCE + _VECTORS_PER_CLASS * self.classes * self.dim * 8

    def unnamed(self, tensors: Iterable[Tensor], named: float) -> int:
        """Return bytes of ``tensors`` beyond network, head, generators and declared bytes."""
        kept, generators = [], 0
        for tensor in tensors:
            generator = tensor.dtype == torch.uint8 and tensor.shape == _GENERATOR
            generators += generator
            if not generator or generators > _GENERATORS:
                kept.append(tensor)
        return max(0, tensor_bytes(kept) - self.model - math.ceil(named))


def held_by(state: State, claims: MemoryUsage, index: ExampleIndex, limits: StorageLimits) -> Held:
    """Measure a state: the same for a learner that was continued from a checkpoint."""
    tensors = state.tensors.values()
    return Held(
        examples=max(len(index.found_in(tensors)), claims.examples),
        bytes={kind: int(size) for kind, size in claims.bytes.items()},
        unnamed_bytes=limits.unnamed(tensors, claims.total) + len(json.dumps(state.meta)),
    )


def all_tensors(learner: Learner) -> list[Tensor]:
    """Return every tensor the learner can reach, saved or not, class attributes included."""
    return list(reachable_tensors(learner, *(vars(kind) for kind in type(learner).__mro__)))


def unnamed_in_reach(tensors: Iterable[Tensor], claims: MemoryUsage, limits: StorageLimits) -> int:
    """Return undeclared bytes in reach; room reserved for a full memory counts as declared."""
    grown = max(1.0, limits.budget / claims.examples) if claims.examples else 1.0
    return limits.unnamed(tensors, grown * claims.total)


def fingerprint(state: State) -> str:
    """Return a hash of everything a state holds."""
    digest = hashlib.blake2b(json.dumps(state.meta, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(state.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _canonical(rows: Tensor) -> Tensor:
    """One precision for all floats (and one zero), bytes for all integers."""
    return rows.to(torch.float32) + 0.0 if rows.is_floating_point() else rows.to(torch.uint8)


def _hashes(rows: Tensor) -> list[int]:
    array = np.ascontiguousarray(rows.cpu().numpy())
    if not len(array):
        return []
    varied = array[array.min(axis=1) != array.max(axis=1)]
    return [hash(row.tobytes()) for row in varied]


class PassCounter:
    """A forward hook that counts calls and images, by phase.

    It is registered on the network that a learner is given. A copy of the network shares the
    counter, so that a stable or previous network counts as well; a new network that a learner
    builds itself is not counted (but its bytes are). A vectorised pass over single examples
    (``torch.func.vmap``) counts all images that it carries.
    """

    def __init__(self) -> None:
        self.phase: Phase = "learning"
        self._dim = 1
        kinds = ("forward_calls", "forward_images", "backward_calls", "backward_images")
        self.counts = {phase: dict.fromkeys(kinds, 0) for phase in ("learning", "evaluation")}

    def attach(self, network: nn.Module, dim: int) -> None:
        """Count what goes through ``network``, ``[B, ...] -> [B, dim]``, and its copies."""
        self._dim = max(1, dim)
        network.register_forward_hook(self)

    def load(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Continue from these counts; ``KeyError`` or ``ValueError`` if they are not counts."""
        for phase, own in self.counts.items():
            own.update({kind: int(counts[phase][kind]) for kind in own})

    def add(self, counts: Mapping[str, Mapping[str, int]]) -> None:
        """Add what another counter has counted."""
        for phase, own in self.counts.items():
            own.update({kind: own[kind] + counts[phase][kind] for kind in own})

    def __call__(self, module: nn.Module, args: Any, output: Any) -> None:
        """Count a forward whose ``output`` is ``[B, D]``, and its backward if there is one."""
        del module, args
        if self.phase == "audit" or not isinstance(output, Tensor):
            return
        plain, differentiated = _unwrapped(output)
        images = plain.numel() // self._dim
        self._count("forward", images)
        if differentiated:  # torch.func.grad: its backward follows at once
            self._count("backward", images)
        elif plain is output and output.requires_grad and torch.is_grad_enabled():
            output.register_hook(lambda _: self._count("backward", images))  # type: ignore[no-untyped-call]  # as in torch

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # a copied network adds to the same counts

    def _count(self, direction: str, images: int) -> None:
        if self.phase != "audit":
            counts = self.counts[self.phase]
            counts[f"{direction}_calls"] += 1
            counts[f"{direction}_images"] += images


def _unwrapped(tensor: Tensor) -> tuple[Tensor, bool]:
    """Return the tensor below all ``torch.func`` transforms, and whether one differentiates."""
    differentiated = False
    while _functorch.is_functorch_wrapped_tensor(tensor):
        differentiated |= _functorch.is_gradtrackingtensor(tensor)
        tensor = _functorch.get_unwrapped(tensor)
    return tensor, differentiated
