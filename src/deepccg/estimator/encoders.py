"""The encoder of an estimator: a named network, or a module of the user's."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from deepccg.core import InputError, derive_seed, validated
from deepccg.networks import Flatten, NetworkConfig, as_float, build_network

_KINDS = {
    "auto": "auto", "fixed": "fixed", "fourier": "fourier", "identity": "identity", "mlp": "mlp",
    "patches": "patches", "resnet": "resnet18",
}  # fmt: skip


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
    if isinstance(encoder, nn.Module):
        if fields:
            raise InputError("encoder_params are for named encoders: set up your module yourself")
        with torch.random.fork_rng(devices=[]):  # lazy layers draw their weights on first use
            torch.manual_seed(derive_seed(seed, "network"))
            return Adapted(copy.deepcopy(encoder), shape, dtype)
    if not isinstance(encoder, str) or encoder not in _KINDS:
        raise InputError(f"encoder is {encoder!r}: choose {', '.join(_KINDS)}, or give a module")
    config = validated(NetworkConfig, {**fields, "kind": _KINDS[encoder]}, "encoder_params")
    network = build_network(config, shape, seed)
    return Adapted(network, shape, dtype) if isinstance(network, Flatten) else network.to(dtype)
