"""Embeddings: ``x [B, ...] -> z [B, D]``, each with an integer ``dim`` = D."""

from deepccg.networks import kernels
from deepccg.networks.build import (
    NetworkConfig,
    build_network,
    gains_from_native,
    map_in_chunks,
    require_embeddable,
)
from deepccg.networks.mlp import MLP, Flatten, as_float
from deepccg.networks.resnet import Convolution, InstanceNorm, SlimResNet18

__all__ = [
    "MLP", "Convolution", "Flatten", "InstanceNorm", "NetworkConfig",
    "SlimResNet18", "as_float", "build_network", "gains_from_native", "kernels",
    "map_in_chunks", "require_embeddable",
]  # fmt: skip
