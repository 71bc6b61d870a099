"""A linear head whose outputs grow with the classes."""

import math

import torch
from torch import Tensor, nn


class GrowingLinear(nn.Module):
    """``[B, D] -> [B, C]``; rows are added as classes appear and never move.

    New rows are initialised as in ``nn.Linear``, from the caller's generator.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.weight = nn.Parameter(torch.empty(0, dim))
        self.bias = nn.Parameter(torch.empty(0))

    def grow(self, outputs: int, generator: torch.Generator) -> bool:
        """Grow to at least ``outputs`` rows; return whether any were added."""
        missing = outputs - len(self.bias)
        if missing <= 0:
            return False
        bound = 1 / math.sqrt(self.dim)
        drawn = torch.rand(missing, self.dim + 1, generator=generator) * 2 * bound - bound
        drawn = drawn.to(self.weight)
        self.weight = nn.Parameter(torch.cat([self.weight.detach(), drawn[:, :-1]]))
        self.bias = nn.Parameter(torch.cat([self.bias.detach(), drawn[:, -1]]))
        return True

    def forward(self, z: Tensor) -> Tensor:
        """Raw logits."""
        return nn.functional.linear(z, self.weight, self.bias)
