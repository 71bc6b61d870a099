"""Embeddings: ``x [B, ...] -> z [B, D]``, each with an integer ``dim`` = D."""

from deepccg.networks import kernels
from deepccg.networks.build import (
    NetworkConfig,
    build_network,
    gains_from_native,
    map_in_chunks,
    network_kind,
    require_embeddable,
    size_to_memory,
)
from deepccg.networks.fixed import FixedFeatures, unfitted_features
from deepccg.networks.fourier import Fourier
from deepccg.networks.mlp import MLP, Flatten, as_float
from deepccg.networks.named_encoders import is_named_encoder, named_encoder
from deepccg.networks.patches import Patches
from deepccg.networks.pretrained import PretrainedEncoder
from deepccg.networks.resnet import Convolution, InstanceNorm, SlimResNet18
from deepccg.networks.robust_fourier import RobustFourier
from deepccg.networks.standardized import Standardized

__all__ = [
    "MLP", "Convolution", "FixedFeatures", "Flatten", "Fourier", "InstanceNorm", "NetworkConfig",
    "Patches", "PretrainedEncoder", "RobustFourier", "SlimResNet18", "Standardized", "as_float",
    "build_network", "gains_from_native", "is_named_encoder", "kernels", "map_in_chunks",
    "named_encoder", "network_kind", "require_embeddable", "size_to_memory", "unfitted_features",
]  # fmt: skip
