"""Augmentation of a training step: each image is moved at random, and mirrored half of the time."""

import torch
from torch import Tensor

from deepccg.learners.views import reflected

FARTHEST = 4  # pixels that an image is moved by
SMALLEST_SIDE = FARTHEST + 1  # what a move leaves out is made up from the next pixels


def crop_and_mirror(x: Tensor, generator: torch.Generator) -> Tensor:
    """A random crop of each image after a reflected border was added, or its mirror image.

    Every place of the crop is equally likely, and independent from image to image,
    ``[B, C, H, W] -> [B, C, H, W]``.
    """
    if len(x) == 0:
        return x
    places = torch.randint(2 * FARTHEST + 1, (2, len(x), 1), generator=generator) - FARTHEST
    mirrored = torch.randint(2, (len(x), 1), generator=generator).bool()
    rows, columns = reflected(x.shape[2], places[0]), reflected(x.shape[3], places[1])
    columns = torch.where(mirrored, columns.flip(1), columns)
    image, channel = torch.arange(len(x)), torch.arange(x.shape[1])
    index = image[:, None, None, None], channel[:, None, None], rows[:, None, :, None]
    return x[tuple(part.to(x.device) for part in (*index, columns[:, None, None, :]))]
