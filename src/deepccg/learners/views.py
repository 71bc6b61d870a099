"""Views of an image: it and its mirror image, each also moved by a pixel or two.

Predictions that are averaged over views depend less on where in the image an object lies.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn


class View(NamedTuple):
    """An image moved by ``down`` and ``right`` pixels, its border reflected, then ``mirrored``."""

    down: int
    right: int
    mirrored: bool

    def of(self, x: Tensor) -> Tensor:
        """This view of each image, ``[B, C, H, W] -> [B, C, H, W]``."""
        if self.down:
            x = x.index_select(2, reflected(x.shape[2], self.down).to(x.device))
        if self.right or self.mirrored:
            columns = reflected(x.shape[3], self.right)
            x = x.index_select(3, (columns.flip(0) if self.mirrored else columns).to(x.device))
        return x


_PLACES = (
    (0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (0, 2), (0, -2), (2, 0), (-2, 0),
)  # fmt: skip
# Those that ``views=V`` averages are the first V; the very first is the image as it is.
VIEWS = tuple(View(*place, mirrored) for place in _PLACES for mirrored in (False, True))
SMALLEST_SIDE = 3  # pixels: what a shift by two leaves out is made up from the next ones


class AverageOverViews(nn.Module):
    """The mean embedding of the first ``views`` views of an image, ``[B, C, H, W] -> [B, D]``."""

    def __init__(self, network: nn.Module, views: int) -> None:
        super().__init__()
        self.network, self.views = network, views

    def forward(self, x: Tensor) -> Tensor:
        """One pass of the network for each view."""
        total: Tensor = self.network(x)
        for view in VIEWS[1 : self.views]:
            total = total + self.network(view.of(x))
        return total / self.views


def reflected(size: int, shift: int | Tensor) -> Tensor:
    """Where each of ``size`` pixels comes from after a shift; beyond the border, from inside it.

    >>> reflected(5, 2).tolist(), reflected(5, -1).tolist()
    ([2, 1, 0, 1, 2], [1, 2, 3, 4, 3])
    """
    last, place = size - 1, torch.arange(size)
    return last - (last - (place - shift).abs()).abs()
