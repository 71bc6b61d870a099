"""Embeddings: ``x [B, ...] -> z [B, D]``, each with an integer ``dim`` = D."""

from deepccg.networks.build import NetworkConfig, build_network
from deepccg.networks.head import GrowingLinear
from deepccg.networks.mlp import MLP, Flat
from deepccg.networks.resnet import SlimResNet18, as_float

__all__ = [
    "MLP",
    "Flat",
    "GrowingLinear",
    "NetworkConfig",
    "SlimResNet18",
    "as_float",
    "build_network",
]
