"""The filters of a network: finding them, switching them off, drawing them anew.

A filter is an output of a convolution or linear layer: its row of the weight, its bias, and its
scale and shift in the norm that follows. What a filter computes depends on these entries and on
the filters before it, so whoever freezes entries and switches off later filters freezes a function.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepccg.core import InputError

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
        if isinstance(module, _BATCH_NORMS) or _tracks(module):
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
def only(layers: Sequence[FilterLayer], on: Sequence[Tensor]) -> Iterator[None]:
    """Within it, the output of every filter but those ``on`` ([width] each) is 0.

    Before the norm, for norms that couple filters; and again behind it, where a filter that is off
    would else give its shift. Outside it the network is as it was.
    """
    with ExitStack() as hooks:
        for layer, filters in zip(layers, on, strict=True):
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


def _tracks(module: nn.Module) -> bool:
    return isinstance(module, _INSTANCE_NORMS) and module.track_running_stats
