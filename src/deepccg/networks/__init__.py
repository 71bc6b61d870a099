"""Embeddings: ``x [B, ...] -> z [B, D]``, each with an integer ``dim`` = D."""

from deepccg.networks.build import NetworkConfig, build_network, gains_from_native
from deepccg.networks.head import GrowingLinear
from deepccg.networks.mlp import MLP, Flat
from deepccg.networks.resnet import InstanceNorm, SlimResNet18, as_float

__all__ = [
    "MLP",
    "Flat",
    "GrowingLinear",
    "InstanceNorm",
    "NetworkConfig",
    "SlimResNet18",
    "as_float",
    "build_network",
    "gains_from_native",
]
