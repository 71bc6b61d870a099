"""Embeddings: ``x [B, ...] -> z [B, D]``, each with an integer ``dim`` = D."""

from deepccg.networks.build import NetworkConfig, build_network, gains_from_native
from deepccg.networks.head import GrowingLinear
from deepccg.networks.mlp import MLP, Flat
from deepccg.networks.noting import noting_each
from deepccg.networks.resnet import Convolution, InstanceNorm, SlimResNet18, as_float
from deepccg.networks.side_by_side import suits_kernels

__all__ = [
    "MLP",
    "Convolution",
    "Flat",
    "GrowingLinear",
    "InstanceNorm",
    "NetworkConfig",
    "SlimResNet18",
    "as_float",
    "build_network",
    "gains_from_native",
    "noting_each",
    "suits_kernels",
]
