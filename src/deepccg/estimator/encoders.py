"""The encoder of an estimator: a named network, or a module of the user's."""

import copy
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deepccg.core import InputError, derive_seed, validated
from deepccg.networks import (
    FixedFeatures,
    Flatten,
    NetworkConfig,
    PretrainedEncoder,
    RobustFourier,
    as_float,
    build_network,
    is_named_encoder,
    named_encoder,
    network_kind,
)

_KINDS = {
    "auto": "auto", "fixed": "fixed", "fourier": "fourier", "identity": "identity", "mlp": "mlp",
    "patches": "patches", "resnet": "resnet18",
}  # fmt: skip

# What ``CCGClassifier`` chooses for ``encoder="auto"``: features that are fitted to the first
# inputs, whatever their order and scale, or, where these are embeddings already, the input itself.
ROBUST, EMBEDDING = CHOSEN = ("robust", "embedding")
WAVED = "waved"  # the field of ``RobustFourier``, once inputs were added
DIM, FEWEST_COSINES = 192, 64  # numbers that describe a vector, those of the vector included
SMALLEST_EMBEDDING, UNIT = 32, 1e-3  # numbers of an embedding, and how far its length is from 1


class Adapted(nn.Module):
    """Any module as an embedding: bytes become floats, outputs are flattened, ``dim`` is known.

    A module without a trainable parameter stays in evaluation mode, so that dropout and running
    statistics are frozen as well. Embeddings of a module in half precision are single.

    Args:
        module: ``[B, ...] -> [B, ...]``.
        shape: The shape of one input.
        dtype: Precision of the inputs, where the module has no parameters.
    """

    def __init__(self, module: nn.Module, shape: Sequence[int], dtype: torch.dtype) -> None:
        super().__init__()
        self.module = module
        parameter = next(module.parameters(), None)
        self.own_dtype = dtype if parameter is None else parameter.dtype
        # Learners read device and precision from the first parameter; this one is always there.
        precision = torch.promote_types(self.own_dtype, torch.float32)
        self.like = nn.Parameter(torch.empty(0, dtype=precision), requires_grad=False)
        self.frozen = not any(p.requires_grad for p in module.parameters())
        self.eval()
        self.dim = self._output_size(shape)

    def forward(self, x: Tensor) -> Tensor:
        """``[B, ...] -> [B, D]``."""
        embedding = self.module(as_float(x, self.like.dtype).to(self.own_dtype))
        if not isinstance(embedding, Tensor):
            raise TypeError(f"it returns a {type(embedding).__name__}, not a tensor")
        return embedding.flatten(1).to(self.like.dtype)

    def train(self, mode: bool = True) -> "Adapted":
        """Set training mode, except for a frozen module."""
        super().train(mode and not self.frozen)
        return self

    def _output_size(self, shape: Sequence[int]) -> int:
        try:
            with torch.no_grad():
                return int(self(self.like.new_zeros(1, *shape)).shape[1])
        except Exception as error:  # noqa: BLE001  (whatever a user's module raises)
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise InputError(
                f"the encoder cannot embed inputs of shape {list(shape)}: {reason}"
            ) from None


def build_encoder(
    encoder: str | nn.Module,
    fields: Mapping[str, Any],
    shape: Sequence[int],
    dtype: torch.dtype,
    seed: int,
) -> nn.Module:
    """Return an embedding of inputs of ``shape``; a user's module is copied.

    Args:
        encoder: A name, or a module that takes floats ``[B, F]`` or images ``[B, C, H, W]``.
        fields: Fields of ``NetworkConfig`` for a named encoder.
        shape: ``[F]`` or ``[C, H, W]``.
        dtype: Precision of a named encoder.
        seed: Initialises a named encoder, and the lazy layers of a module.
    """
    if fields and (isinstance(encoder, nn.Module) or is_named_encoder(encoder)):
        raise InputError("encoder_params are not for modules: set up a PretrainedEncoder yourself")
    if isinstance(encoder, str) and is_named_encoder(encoder):
        encoder = named_encoder(encoder)
    if isinstance(encoder, PretrainedEncoder):
        return encoder.for_inputs(shape)
    if isinstance(encoder, nn.Module):
        with torch.random.fork_rng(devices=[]):  # lazy layers draw their weights on first use
            torch.manual_seed(derive_seed(seed, "network"))
            return Adapted(copy.deepcopy(encoder), shape, dtype)
    if encoder == ROBUST:
        return _robust(fields, shape, seed).to(dtype)
    if encoder == EMBEDDING:
        encoder = "identity"
    if not isinstance(encoder, str) or encoder not in _KINDS:
        raise InputError(
            f"encoder is {encoder!r}: choose {', '.join(_KINDS)}, timm:NAME or "
            f"hf:NAME, or give a module"
        )
    config = validated(NetworkConfig, {**fields, "kind": _KINDS[encoder]}, "encoder_params")
    network = build_network(config, shape, seed)
    return Adapted(network, shape, dtype) if isinstance(network, Flatten) else network.to(dtype)


def chosen_encoder(x: Tensor) -> str:
    """Return the encoder for inputs like ``x [N, ...]``, the first that come.

    Embeddings computed elsewhere have unit length, and hardly a number that is 0.

    >>> chosen_encoder(nn.functional.normalize(torch.randn(5, 40)))
    'embedding'
    >>> chosen_encoder(torch.randn(5, 40))
    'robust'
    """
    if x.ndim != 2 or x.shape[1] < SMALLEST_EMBEDDING:
        return ROBUST
    unit = bool(((x.double().norm(dim=1) - 1).abs() < UNIT).all())
    return EMBEDDING if unit and bool((x != 0).double().mean() > 0.5) else ROBUST


def _robust(fields: Mapping[str, Any], shape: Sequence[int], seed: int) -> FixedFeatures:
    """Return patches of images; of vectors, and of very small images, themselves and cosines."""
    fields, waved = dict(fields), fields.get(WAVED)
    fields.pop(WAVED, None)
    config = validated(NetworkConfig, {**fields, "kind": "fixed"}, "encoder_params")
    if network_kind(config, shape) == "fourier":
        inputs = math.prod(shape)
        cosines = config.features or max(FEWEST_COSINES, DIM - (waved or inputs))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(seed, "network"))
            return RobustFourier(inputs, cosines, waved)
    patches = build_network(config, shape, seed)
    assert isinstance(patches, FixedFeatures)  # noqa: S101  (the one other kind)
    patches.distinct = True
    return patches
