"""Networks for vectors and very small images: an MLP, and the identity.

With them what every network shares: inputs as floats, and a cheap change of mode.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn


def as_float(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Scale bytes to floats in [-1, 1]; return floats as they are."""
    return x if x.is_floating_point() else x.to(dtype).sub_(127.5).div_(127.5)


class ModeFreeModule(nn.Module):
    """A network whose modules behave alike in training and evaluation mode.

    Setting the mode is not passed on to them: a step sets it twice, and doing so for eight modules
    takes a twentieth of a small step.
    """

    def train(self, mode: bool = True) -> Self:
        """Set the mode of this module alone."""
        self.training = mode
        return self


class Flatten(ModeFreeModule):
    """The input itself, flattened: for embeddings computed elsewhere."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.dim = features

    def forward(self, x: Tensor) -> Tensor:
        """``[B, ...] -> [B, F]``."""
        return as_float(x).flatten(1)


class MLP(ModeFreeModule):
    """Blocks of linear layer, layer normalisation and ReLU.

    Layer normalisation pins the embedding's scale, as instance normalisation does for images:
    without it a step size that suits one data set diverges on another. It couples no two examples.

    Args:
        features: Input size after flattening.
        layers: Sizes of the layers; the last is the embedding's.
    """

    def __init__(self, features: int, layers: Sequence[int] = (100, 80)) -> None:
        super().__init__()
        sizes = [features, *layers]
        modules: list[nn.Module] = []
        for inputs, outputs in pairwise(sizes):
            modules += [nn.Linear(inputs, outputs), nn.LayerNorm(outputs), nn.ReLU()]
        self.layers = nn.Sequential(*modules)
        self.dim = sizes[-1]

    def forward(self, x: Tensor) -> Tensor:
        """``[B, ...] -> [B, D]``."""
        if not x.is_floating_point():
            x = as_float(x, next(self.parameters()).dtype)
        embedding: Tensor = self.layers(x.flatten(1))
        return embedding
