"""Embeddings: ``x [B, ...] -> z [B, D]``, each with an integer ``dim`` = D."""

from deepccg.networks.build import NetworkConfig, build_network, gains_from_native
from deepccg.networks.embedding import map_in_chunks, require_embeddable
from deepccg.networks.head import GrowingLinear
from deepccg.networks.kernels import noting_each, suits_kernels
from deepccg.networks.mlp import MLP, Flat, as_float
from deepccg.networks.resnet import Convolution, InstanceNorm, SlimResNet18

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
    "map_in_chunks",
    "noting_each",
    "require_embeddable",
    "suits_kernels",
]
