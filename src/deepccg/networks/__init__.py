"""Embeddings: ``x [B, ...] -> z [B, D]``, each with an integer ``dim`` = D."""

from deepccg.networks import kernels
from deepccg.networks.build import NetworkConfig, build_network, gains_from_native
from deepccg.networks.head import GrowingLinear
from deepccg.networks.mlp import MLP, Flatten, as_float
from deepccg.networks.resnet import Convolution, InstanceNorm, SlimResNet18

__all__ = [
    "MLP",
    "Convolution",
    "Flatten",
    "GrowingLinear",
    "InstanceNorm",
    "NetworkConfig",
    "SlimResNet18",
    "as_float",
    "build_network",
    "gains_from_native",
    "kernels",
]
