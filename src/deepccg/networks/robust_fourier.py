"""Random Fourier features that no scale of the inputs can spoil, with room for further inputs."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from deepccg.networks.fourier import Fourier
from deepccg.networks.mlp import as_float

LINEAR = 3.0  # deviations from the mean up to which an input enters as it is


class RobustFourier(Fourier):
    """``sqrt(2) cos(W z + b)`` and z, ``[B, ...] -> [B, features + F]``, as ``Fourier`` has them.

    z is the standardised input, but beyond three deviations it grows as a logarithm, with the same
    slope there. The first inputs may be of one class, in which a feature hardly varies: what
    comes later would be thousands of deviations off, and outweigh all other features.

    Inputs that are added later stand behind the others and enter by themselves, not by the cosines:
    where they are 0, nothing changes.

    Args:
        inputs: F, the input's size after flattening.
        features: How many cosines.
        waved: How many of the inputs, the first, the cosines are of; all by default.
    """

    distinct = True

    def __init__(self, inputs: int, features: int, waved: int | None = None) -> None:
        super().__init__(inputs, features)
        self.waved = inputs if waved is None else waved
        if self.waved != inputs:
            self.register_buffer("frequency", torch.empty(features, self.waved), persistent=False)
            self.draw()

    def features(self, x: Tensor) -> Tensor:
        """The cosines and the standardised input, ``[B, features + F]``."""
        x = as_float(x, self.mean.dtype).to(self.mean.dtype).flatten(1)
        z = with_logarithmic_tails((x - self.mean) / self.deviation)
        waves = F.linear(z[:, : self.waved], self.frequency, self.phase).cos()
        return torch.cat([math.sqrt(2) * waves, z], dim=1)


def with_logarithmic_tails(z: Tensor) -> Tensor:
    """Numbers of any shape as they are up to three, beyond it growing as a logarithm.

    >>> with_logarithmic_tails(torch.tensor([-2.0, 3.0, 300.0])).round().tolist()
    [-2.0, 3.0, 17.0]
    """
    stretch = z.abs().clamp(min=LINEAR).log() + (1 - math.log(LINEAR))
    return z.clamp(-LINEAR, LINEAR) * stretch
