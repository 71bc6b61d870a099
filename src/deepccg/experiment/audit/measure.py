"""What an audit measures: stored bytes, changes of a state, passes of the network."""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch._C import _functorch  # no public way to see how many examples vmap carries

from deepccg.core import MemoryUsage, State
from deepccg.experiment.audit.contents import read_tensor
from deepccg.experiment.audit.reach import Part, bytes_by_name, part_of

Phase = Literal["learning", "evaluation", "audit"]

_GENERATOR = torch.Generator().get_state().shape  # of a saved generator's bytes
_GENERATORS = 4  # so many generators need not be declared
_ALLOWANCE = 8192  # bytes for counters, the method's fields, derived scalars
_SMALL = 0.05  # of the largest part's bytes: smaller ones are not told of
_TOLD = 3  # the largest parts that a message names
_VECTORS_PER_CLASS = 2  # of the embedding's size, such as class means, kept beside a head


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

    def unnamed(self, parts: Iterable[Part], named: float) -> int:
        """Return bytes of ``parts`` beyond network, head, generators and declared bytes."""
        kept, generators = [], 0
        for part in parts:
            generator = part.values.dtype == np.uint8 and part.values.shape == _GENERATOR
            generators += generator
            if not generator or generators > _GENERATORS:
                kept.append(part)
        return max(0, sum(bytes_by_name(kept).values()) - self.model - math.ceil(named))


def beside(network: nn.Module, parts: Iterable[Part]) -> dict[str, int]:
    """Return bytes by name of what the ``network`` itself does not hold."""
    tensors = (*network.parameters(), *network.buffers())
    given = {tensor.untyped_storage().data_ptr() for tensor in tensors}
    return bytes_by_name(part for part in parts if part.start not in given)


def how_to_declare(sizes: Mapping[str, int]) -> str:
    """Say which names hold most bytes, and how ``memory_usage`` declares the first of them."""
    groups: dict[str, dict[str, int]] = {}  # attributes of the learner, with what lies in them
    for name, size in sizes.items():
        attribute = ".".join(name.split(".")[:2]) if name.startswith("learner.") else name
        groups.setdefault(attribute, {})[name] = size
    totals = {attribute: sum(within.values()) for attribute, within in groups.items()}
    largest = sorted(totals, key=lambda attribute: -totals[attribute])
    told: list[str] = []
    for attribute in largest[:_TOLD]:
        within = groups[attribute]
        if len(within) > _TOLD:  # such as a copied network
            within = {f"{attribute} (in {len(within)} parts)": totals[attribute]}
        told += [
            f"{name} {size:,}"
            for name, size in sorted(within.items(), key=lambda item: -item[1])
            if size >= _SMALL * totals[largest[0]]
        ]
    kind = largest[0].rpartition(".")[2]
    return (
        f"Largest: {', '.join(told)}. Name what is meant to be kept in memory_usage(), as in "
        f'bytes={{"{kind}": {totals[largest[0]]}}}'
    )


def state_parts(state: State) -> list[Part]:
    """Return the tensors of a state as parts."""
    return [
        part_of(name, values, form, tensor)
        for name, tensor in state.tensors.items()
        for values, form in read_tensor(tensor)
    ]


def saved_sizes(state: State) -> dict[str, int]:
    """Return the bytes of everything in a state but the network's tensors, by name."""
    sizes = {
        f"state_dict().tensors[{name!r}]": tensor.nbytes
        for name, tensor in state.tensors.items()
        if not name.startswith("network.")
    }
    return {**sizes, "state_dict().meta": len(json.dumps(state.meta))}


def reserved(claims: MemoryUsage, limits: StorageLimits) -> float:
    """Return the declared bytes; room reserved for a full memory counts as declared."""
    grown = max(1.0, limits.budget / claims.examples) if claims.examples else 1.0
    return grown * claims.total


def fingerprint(state: State) -> str:
    """Return a hash of everything a state holds."""
    digest = hashlib.blake2b(json.dumps(state.meta, sort_keys=True).encode(), digest_size=16)
    for name, tensor in sorted(state.tensors.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


class MoveCounter:
    """Counts how often the weights of a network moved between two of its passes.

    PyTorch numbers the changes of every tensor, whoever makes them.
    """

    def __init__(self) -> None:
        self.moves = 0
        self._weights: list[Tensor] = []
        self._seen, self._moved = 0, False

    def attach(self, network: nn.Module, moves: int = 0, *, moved: bool = False) -> None:
        """Watch the trained weights of ``network``, after so many moves and perhaps a last one."""
        self._weights = [weight for weight in network.parameters() if weight.requires_grad]
        self.moves, self._seen, self._moved = moves, self._changes(), moved

    @property
    def moved(self) -> bool:
        """Whether the weights moved since the last pass; ``moves`` is without that."""
        return self._moved or self._changes() != self._seen

    def on_pass(self) -> None:
        """Count a move if the weights are not those of the last pass."""
        self.moves += self.moved
        self._seen, self._moved = self._changes(), False

    def _changes(self) -> int:
        return sum(weight._version for weight in self._weights)


class PassCounter:
    """A forward hook that counts calls and images, by phase.

    It is registered on the network that a learner is given. A copy of the network shares the
    counter, so that a stable or previous network counts as well; a new network that a learner
    builds itself is not counted (but its bytes are). A vectorised pass over single examples
    (``torch.func.vmap``) counts all images that it carries. ``weights`` counts how often the
    network's weights moved between passes of learning.
    """

    def __init__(self) -> None:
        self.phase: Phase = "learning"
        self.weights = MoveCounter()
        self._dim = 1
        kinds = ("forward_calls", "forward_images", "backward_calls", "backward_images")
        self.counts = {phase: dict.fromkeys(kinds, 0) for phase in ("learning", "evaluation")}

    def attach(self, network: nn.Module, dim: int) -> None:
        """Count what goes through ``network``, ``[B, ...] -> [B, dim]``, and its copies."""
        self._dim = max(1, dim)
        self.weights.attach(network)
        network.register_forward_hook(self)

    @property
    def trained_at_evaluation(self) -> int:
        """Images that a learner trained on when it was asked."""
        return self.counts["evaluation"]["backward_images"]

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
        if self.phase == "learning":
            self.weights.on_pass()
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
