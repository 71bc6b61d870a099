"""Which task owns which filter, and which filters a task sees and moves."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from deepccg.core import InputError, State, StateMismatch

Layer = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.Linear
Norm = nn.GroupNorm | nn.LayerNorm | nn.InstanceNorm1d | nn.InstanceNorm2d | nn.InstanceNorm3d

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


@dataclass(frozen=True)
class FilterLayer:
    """A layer and the norm behind it.

    Args:
        name: The layer's name in its network.
        layer: Its weight is ``[width, ...]``.
        norm: The norm that follows, if one does.
    """

    name: str
    layer: Layer
    norm: Norm | None = None

    @property
    def width(self) -> int:
        """How many filters."""
        return len(self.layer.weight)

    @property
    def scale(self) -> Tensor | None:
        """The norm's factor for each filter, ``[width]``, if it has one."""
        return None if self.norm is None else self.norm.weight

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Everything that belongs to filters; the first axis is always ``width``."""
        own = list(self.layer.parameters())
        return own if self.norm is None else own + list(self.norm.parameters())

    def fits(self, norm: Norm) -> bool:
        """Whether ``norm`` can be this layer's: it has none yet and as many filters."""
        if isinstance(norm, nn.LayerNorm):
            return self.norm is None and norm.normalized_shape == (self.width,)
        channels = norm.num_channels if isinstance(norm, nn.GroupNorm) else norm.num_features
        return self.norm is None and channels == self.width

    @torch.no_grad()
    def redraw(self, filters: Tensor, generator: torch.Generator) -> None:
        """Give ``filters [width]`` new values, as PyTorch draws those of a new layer."""
        bound = 1 / math.sqrt(math.prod(self.layer.weight.shape[1:]))
        for parameter in self.layer.parameters():
            drawn = torch.rand(parameter.shape, generator=generator) * 2 * bound - bound
            parameter[filters] = drawn.to(parameter)[filters]
        for name, parameter in () if self.norm is None else self.norm.named_parameters():
            parameter[filters] = 1.0 if name == "weight" else 0.0


def filter_layers(network: nn.Module) -> list[FilterLayer]:
    """Every layer of ``network`` that is trained, with its norm: the next module registered.

    Raises:
        InputError: If something is trained that belongs to no filter.
    """
    found: list[FilterLayer] = []
    for name, module in network.named_modules():
        running = isinstance(module, _INSTANCE_NORMS) and module.track_running_stats
        if running or isinstance(module, _BATCH_NORMS):
            raise InputError(
                f"the running statistics of {name} drift with every task: use instance, group or "
                f"layer normalisation without them"
            )
        if isinstance(module, Layer):
            found.append(FilterLayer(name, module))
        elif isinstance(module, Norm) and found and found[-1].fits(module):
            found[-1] = FilterLayer(found[-1].name, found[-1].layer, module)
    layers = [layer for layer in found if any(p.requires_grad for p in layer.parameters)]
    known = Counter(id(p) for layer in layers for p in layer.parameters)
    for name, parameter in network.named_parameters():
        if parameter.requires_grad and known[id(parameter)] != 1:
            raise InputError(
                f"{name} belongs to no filter, or to several: use convolutions and linear layers, "
                f"each norm registered right after its layer, or set its requires_grad to False"
            )
    return layers


@contextmanager
def filters_enabled(layers: Sequence[FilterLayer], active: Sequence[Tensor]) -> Iterator[None]:
    """A context in which the output of every filter but the ``active [width]`` ones is 0.

    Before the norm, for norms that couple filters; and again behind it, where a filter that is off
    would else give its shift. Outside it the network is as it was.
    """
    with ExitStack() as hooks:
        for layer, filters in zip(layers, active, strict=True):
            for module in (layer.layer, layer.norm):
                if module is not None and not bool(filters.all()):
                    switch = _Switch(~filters, last=isinstance(module, nn.Linear | nn.LayerNorm))
                    hooks.enter_context(module.register_forward_hook(switch))
        yield


class _Switch:
    """A forward hook that writes 0 where a filter is off."""

    def __init__(self, off: Tensor, last: bool) -> None:
        self.off, self.last = off, last

    def __call__(self, _module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        after = 0 if self.last else output.ndim - 2  # axes behind the filters'
        return torch.where(self.off.view(-1, *[1] * after), 0.0, output)


Score = Literal["gamma", "taylor", "l1"]

FREE = 0  # owner of the filters that no task has claimed
UNOWNED = -1


class FilterOwnership:
    """The owner of every filter. Tasks are numbered 1, 2, ... in the order they begin."""

    def __init__(self, layers: Sequence[FilterLayer]) -> None:
        self.layers = layers
        like = [layer.layer.weight.detach() for layer in layers]
        self.owners = [w.new_zeros(len(w), dtype=torch.int32) for w in like]
        self.importance = [w.new_zeros(len(w)) for w in like]  # of the free filters, this task
        self.tasks: list[int] = []  # each task's index in the learner's table
        self.present = 0  # number of the present task
        self.moving = UNOWNED  # whose filters are trained: FREE, of ``present``, or UNOWNED: none
        self.batches = 0  # learned of the present task

    def start_task(self, task: int) -> None:
        """Note a batch of this task: if the task is new, its filters are still to be chosen."""
        new = task not in self.tasks
        if new:
            self.tasks.append(task)
        number = self.tasks.index(task) + 1
        if number != self.present:
            self.present, self.batches = number, 0
            self.moving = FREE if new else UNOWNED

    def active(self, task: int) -> list[Tensor]:
        """Filters a task computes with: its own and those before; all while it still chooses."""
        number = self.tasks.index(task) + 1
        if number == self.present and self.moving == FREE:
            return [torch.ones_like(owner, dtype=torch.bool) for owner in self.owners]
        return [(owner != FREE) & (owner <= number) for owner in self.owners]

    def trainable(self) -> dict[int, Tensor]:
        """For every parameter, by its ``id``, the filters whose entries may change."""
        return {
            id(parameter): owner == self.moving
            for layer, owner in zip(self.layers, self.owners, strict=True)
            for parameter in layer.parameters
        }

    def scores(self, kind: Score) -> list[Tensor]:
        """What each filter is worth, ``[width]`` for every layer."""
        if kind == "taylor":
            return self.importance
        return [
            layer.layer.weight.detach().abs().flatten(1).sum(dim=1)
            if kind == "l1" or layer.scale is None
            else layer.scale.detach().abs()
            for layer in self.layers
        ]

    def add_importance(self, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """Add |gradient * weight|, summed over each filter's weights, to its importance.

        The absolute value comes first: behind a norm the size of a filter does not matter, so that
        the products themselves add up to 0.
        """
        of = {id(p): g for p, g in zip(parameters, gradients, strict=True)}
        for layer, importance in zip(self.layers, self.importance, strict=True):
            weight = layer.layer.weight
            if id(weight) in of:
                importance += (of[id(weight)] * weight.detach()).abs().flatten(1).sum(dim=1)

    def free_share(self) -> float:
        """Share of all filters that no task owns; 0 if there are no filters."""
        if not self.owners:
            return 0.0
        return float((torch.cat(self.owners) == FREE).double().mean())

    def claim(self, scores: Sequence[Tensor], share: float, generator: torch.Generator) -> None:
        """Give the best free filters of each layer to the present task; draw the rest again.

        Of equal scores the first counts as better. Filters that never moved stay as they are.
        """
        for layer, owner, score in zip(self.layers, self.owners, scores, strict=True):
            free = (owner == FREE).nonzero().flatten()
            order = torch.sort(score[free], descending=True, stable=True).indices
            count = claimed(len(free), share)
            owner[free[order[:count]]] = self.present
            if self.batches:
                layer.redraw(free[order[count:]], generator)
        for importance in self.importance:
            importance.zero_()
        self.moving = self.present

    def _tensors(self) -> dict[str, Tensor]:
        names = [layer.name for layer in self.layers]
        owners = zip(names, self.owners, strict=True)
        importance = zip(names, self.importance, strict=True)
        return {f"owner.{n}": t for n, t in owners} | {f"importance.{n}": t for n, t in importance}

    def state(self) -> State:
        """Owners and importance of every filter, and where the present task is."""
        meta = {
            "tasks": list(self.tasks),
            "present": self.present,
            "moving": self.moving,
            "batches": self.batches,
        }
        return State({name: tensor.clone() for name, tensor in self._tensors().items()}, meta)

    def check(self, state: State) -> None:
        """The same filters, owned by tasks that are known."""
        own = {name: (t.shape, t.dtype) for name, t in self._tensors().items()}
        if own != {name: (t.shape, t.dtype) for name, t in state.tensors.items()}:
            raise StateMismatch("the state's filters are not this network's")
        tasks, present = len(state.meta["tasks"]), int(state.meta["present"])
        owners = [t for name, t in state.tensors.items() if name.startswith("owner.")]
        known = all(bool(((owner >= 0) & (owner <= tasks)).all()) for owner in owners)
        moving = int(state.meta["moving"])
        if not known or not 0 <= present <= tasks or moving not in (UNOWNED, FREE, present):
            raise StateMismatch("the state's filters belong to tasks it does not know")
        int(state.meta["batches"])

    def load(self, state: State) -> None:
        """Copy the state's values in."""
        for name, tensor in self._tensors().items():
            tensor.copy_(state.tensors[name])
        self.tasks = [int(task) for task in state.meta["tasks"]]
        self.present, self.moving = int(state.meta["present"]), int(state.meta["moving"])
        self.batches = int(state.meta["batches"])


def claimed(free: int, share: float) -> int:
    """How many of a layer's ``free`` filters a task takes: a share, at least one while there is.

    >>> [claimed(free, 0.3) for free in (10, 7, 5, 3, 2, 1, 0)]
    [3, 2, 2, 1, 1, 1, 0]
    """
    return min(free, max(1, round(share * free)))
