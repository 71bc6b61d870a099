"""Embeddings for vectors and very small images."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Self

import torch
from torch import Tensor, nn


def as_float(x: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Bytes become floats in [-1, 1]; floats stay as they are."""
    return x if x.is_floating_point() else x.to(dtype).sub_(127.5).div_(127.5)


class ModeFreeModule(nn.Module):
    """A network without parts that depend on the mode: they need not be told of it.

    A step changes the mode twice, and to tell eight modules takes a twentieth of a small one.
    """

    def train(self, mode: bool = True) -> Self:
        """As ``nn.Module.train``, for this module alone."""
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
