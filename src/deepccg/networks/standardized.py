"""A network behind inputs that are standardised by running statistics."""

import torch
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.networks.fixed import known_deviation
from deepccg.networks.mlp import ModeFreeModule
from deepccg.networks.robust_fourier import with_logarithmic_tails


class Standardized(ModeFreeModule):
    """``network(t((x - mean) / deviation))``, mean and deviation of all that was observed.

    A feature that never varied has deviation 1. Beyond three deviations t grows as a logarithm: a
    value that is far from all before it does not outweigh the other features.

    Args:
        network: ``[B, F] -> [B, D]``.
        features: F.
        dtype: Precision of the statistics.
    """

    count: Tensor  # [], how many inputs were observed
    mean: Tensor  # [F]
    scatter: Tensor  # sum of squared deviations from the mean, [F]

    def __init__(self, network: nn.Module, features: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.network, self.dim = network, network.dim
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("mean", torch.zeros(features, dtype=dtype))
        self.register_buffer("scatter", torch.zeros(features, dtype=dtype))

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Add inputs ``x [B, F]`` to the statistics (Chan, Golub & LeVeque 1979)."""
        variance, mean = torch.var_mean(x.double(), dim=0, correction=0)
        total, offset = int(self.count) + len(x), mean - self.mean
        share = len(x) / total
        scatter = len(x) * (variance + (1 - share) * offset.square())
        scatter = (self.scatter + scatter).to(self.scatter.dtype)
        if not bool(torch.isfinite(scatter).all()):
            worst = int((~torch.isfinite(scatter)).nonzero()[0, 0])
            raise InputError(
                f"feature {worst} has values too large to standardise: scale it, or leave them out"
            )
        self.mean.add_(share * offset)
        self.scatter.copy_(scatter)
        self.count.fill_(total)

    def forward(self, x: Tensor) -> Tensor:
        """``[B, F] -> [B, D]``."""
        deviation = (self.scatter / self.count.clamp(min=1)).sqrt()
        z = (x.flatten(1) - self.mean) / known_deviation(deviation, self.mean.abs())
        embedding: Tensor = self.network(with_logarithmic_tails(z))
        return embedding
