"""Build a seeded network from a configuration and an input shape; embed with it in chunks."""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import torch
from pydantic import Field, PositiveInt, SerializerFunctionWrapHandler, model_serializer
from torch import Tensor, nn

from deepccg.core import Config, InputError, derive_seed
from deepccg.networks.fourier import Fourier
from deepccg.networks.kernels import unavailable_reason
from deepccg.networks.mlp import MLP, Flatten
from deepccg.networks.patches import Patches
from deepccg.networks.resnet import SlimResNet18

MOST_NUMBERS = 10**9
DEFAULT_FILTERS, FEWEST_FILTERS, MOST_FILTERS = 100, 10, 400
DEFAULT_FEATURES = 500
# Embedded at once without gradient: activations stay in the cache, and a multiple of eight images
# fills the registers of the native kernels.
IMAGES, VECTORS = 48, 2000


class NetworkConfig(Config):
    """Which embedding, and how large."""

    kind: Literal["auto", "resnet18", "mlp", "identity", "fixed", "patches", "fourier"] = Field(
        "auto",
        description="auto takes resnet18 for images of 16 pixels a side or more, else mlp; fixed "
        "takes patches for such images, else fourier: features that are fitted to the first inputs "
        "and never change",
    )
    width: PositiveInt = Field(10, description="resnet18: filters of the first stage (paper: 64/6)")
    affine: bool = Field(True, description="resnet18: learned scale and shift in the norms")
    layers: tuple[PositiveInt, ...] = Field(
        (100, 80),
        min_length=1,
        max_length=100,
        description="mlp: sizes of the layers; the last is the embedding's",
    )
    remap: bool = Field(
        False,
        description="add a bias-free linear layer, started at the identity: the linear remapping "
        "to a fixed covariance that the model assumes",
    )
    filters: PositiveInt | None = Field(
        None,
        description=f"patches: filters of the dictionary; default {DEFAULT_FILTERS}, for ccg what "
        f"the memory's bytes have room for, up to {MOST_FILTERS}",
    )
    patch_side: PositiveInt = Field(6, description="patches: pixels of a patch's side")
    grid: PositiveInt = Field(2, description="patches: responses are averaged in grid x grid cells")
    mirror: bool = Field(
        True,
        description="patches: average each image with its mirror image, for twice the time; "
        "false where left and right differ, as in writing",
    )
    features: PositiveInt | None = Field(
        None,
        description="fourier: cosines beside the input itself; default "
        f"{DEFAULT_FEATURES}, or fewer if memory_bytes is given",
    )

    @model_serializer(mode="wrap")
    def _without_unused(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write fields of fixed features for their own kind only: names of runs are older."""
        fields: dict[str, Any] = handler(self)
        own = (self.kind, "fixed")
        return {k: v for k, v in fields.items() if self.kind in _KINDS_OF_FIELD.get(k, own)}


_KINDS_OF_FIELD = {
    **dict.fromkeys(("filters", "patch_side", "grid", "mirror"), ("fixed", "patches")),
    "features": ("fixed", "fourier"),
}


class LinearRemap(nn.Module):
    """An embedding followed by a linear map that starts as the identity."""

    def __init__(self, network: nn.Module, dim: int) -> None:
        super().__init__()
        self.network = network
        self.map = nn.Linear(dim, dim, bias=False)
        nn.init.eye_(self.map.weight)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """``[B, ...] -> [B, D]``."""
        mapped: Tensor = self.map(self.network(x))
        return mapped


def build_network(
    config: NetworkConfig, shape: Sequence[int], seed: int, native: bool = False
) -> nn.Module:
    """Build a network for inputs of ``shape`` (without the batch axis), initialised from ``seed``.

    The same seed gives every method the same initial weights, and the global generator is left
    as it was. With ``native``, compiled kernels are used where the network and this machine have
    them; the result differs in rounding only.
    """
    kind = network_kind(config, shape)
    if kind == "resnet18" and not _large(shape):
        raise InputError(
            f"the ResNet needs images of at least {SlimResNet18.SMALLEST_SIDE} pixels a side, this "
            f"data is {list(shape)}; use network.kind=mlp, or encoder='mlp'"
        )
    _check_size(config, kind, shape)
    if native and (reason := unavailable_reason()) is not None:
        warnings.warn(
            f"{reason}: PyTorch's own operations are used, which are slower and differ in the "
            f"last digits",
            stacklevel=2,
        )
        native = False
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive_seed(seed, "network"))
        return _build(config, kind, shape, native)


def size_to_memory(
    config: NetworkConfig, shape: Sequence[int], largest: int | None, *, strict: bool
) -> NetworkConfig:
    """Choose how many features where that is open: as many as a learner's memory has room for.

    Args:
        config: Which embedding.
        shape: Of one input.
        largest: The largest embedding that there is room for; ``None``: any.
        strict: Whether more than that, also if the configuration asks for it, is refused. If not,
            images have as many filters as fit, but at least a few, and vectors what is usual.
    """
    if largest is None:
        return config
    kind = network_kind(config, shape)
    if kind == "patches" and config.filters is None:
        fit = min(largest // (2 * config.grid**2), MOST_FILTERS)
        config = config.model_copy(update={"filters": max(fit, 1 if strict else FEWEST_FILTERS)})
    if not strict:
        return config
    if kind == "fourier" and config.features is None:
        fit = min(largest - math.prod(shape), DEFAULT_FEATURES)
        config = config.model_copy(update={"features": max(fit, 1)})
    _check_size(config, kind, shape)
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        dim = _build(config, kind, shape).dim
    if not isinstance(dim, int) or dim > largest:
        smaller = {
            "patches": "lower network.filters, or ",
            "fourier": "lower network.features, or ",
        }
        if math.prod(shape) >= largest:  # cosines stand beside the input
            smaller["fourier"] = f"the input's own {math.prod(shape)} are among them: "
        raise InputError(
            f"statistics of {dim} features do not fit into the memory, those of {largest} do: "
            f"{smaller.get(kind, '')}raise memory_bytes"
        )
    return config


def network_kind(config: NetworkConfig, shape: Sequence[int]) -> str:
    """The kind of network that a configuration selects for inputs of ``shape``."""
    chosen = {"auto": ("resnet18", "mlp"), "fixed": ("patches", "fourier")}.get(config.kind)
    if chosen is None:
        return config.kind
    return chosen[0] if _large(shape) else chosen[1]


def gains_from_native(config: NetworkConfig, shape: Sequence[int]) -> bool:
    """Whether compiled kernels would be used, here and for this network."""
    return network_kind(config, shape) == "resnet18" and unavailable_reason() is None


def _large(shape: Sequence[int]) -> bool:
    return len(shape) == 3 and min(shape[1:]) >= SlimResNet18.SMALLEST_SIDE


def _build(
    config: NetworkConfig, kind: str, shape: Sequence[int], native: bool = False
) -> nn.Module:
    if kind == "resnet18":
        network: nn.Module = SlimResNet18(shape[0], config.width, config.affine, native)
    elif kind == "mlp":
        network = MLP(math.prod(shape), config.layers)
    elif kind == "patches":
        filters = config.filters or DEFAULT_FILTERS
        network = Patches(shape, filters, config.patch_side, config.grid, mirror=config.mirror)
    elif kind == "fourier":
        network = Fourier(math.prod(shape), config.features or DEFAULT_FEATURES)
    else:
        network = Flatten(math.prod(shape))
    dim = network.dim
    assert isinstance(dim, int)  # noqa: S101  (nn.Module types every attribute as a union)
    return LinearRemap(network, dim) if config.remap else network


def _check_size(config: NetworkConfig, kind: str, shape: Sequence[int]) -> None:
    """Reject a network that is too large, before any of it is allocated."""
    try:
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            network = _build(config, kind, shape)
    except (RuntimeError, TypeError, OverflowError):
        count = None
    else:
        tensors = [*network.parameters(), *network.buffers()]
        count = sum(tensor.numel() for tensor in tensors)
    if count is None or count > MOST_NUMBERS:
        size = "" if count is None else f" of {count:,} numbers"
        raise InputError(
            f"a network{size} for inputs {list(shape)} is too large, {MOST_NUMBERS:,} are "
            f"allowed: lower network.width, network.layers, network.filters or network.features"
        )


def map_in_chunks(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """``function(x)``, which treats each example ``x [B, ...]`` by itself, a chunk at a time."""
    size = IMAGES if x.ndim > 2 else VECTORS
    if len(x) <= size:
        return function(x)
    return torch.cat([function(chunk) for chunk in torch.split(x, size)])


def require_embeddable(network: nn.Module, x: Tensor, shape: Sequence[int]) -> None:
    """Reject examples ``x`` that the network does not turn into ``shape``.

    The network's ``forward`` is called as such: hooks that count forwards count learning only.
    """
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            z = network.forward(x)
    except InputError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"the network cannot embed inputs of shape {list(x.shape[1:])}: {reason}"
        ) from error
    finally:
        network.train(training)
    if tuple(z.shape) != tuple(shape):
        raise InputError(
            f"the network embeds one input as {list(z.shape)}, its `dim` says {list(shape)}"
        )
