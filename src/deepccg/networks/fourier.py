"""Random Fourier features of vectors, beside the vectors themselves."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from deepccg.core import InputError
from deepccg.networks.fixed import LARGEST, FixedFeatures, known_deviation
from deepccg.networks.mlp import as_float


class Fourier(FixedFeatures):
    """The standardised input z, and ``sqrt(2) cos(W z + b)``, ``[B, ...] -> [B, F + features]``.

    W is drawn from N(0, 2 gamma) with gamma = 1/F, b evenly from [0, 2 pi): inner products of the
    cosines tend to ``features * exp(-gamma |z - z'|^2)`` (Rahimi & Recht, "Random features for
    large-scale kernel machines", NeurIPS 2007). Mean and deviation of the input are those of the
    first inputs; where they do not differ, the deviation is 1.

    Either block has a mean square of 1 per feature: a prior that treats all directions alike, or a
    step size, then suits both. The usual factor ``sqrt(2 / features)`` would leave the cosines so
    small beside the input that such a prior shrinks them away.

    Only the seed of W and b is saved; they are drawn again when a state is loaded.

    Args:
        inputs: F, the input's size after flattening.
        features: How many cosines.
    """

    seed: Tensor  # []
    mean: Tensor  # [F]
    deviation: Tensor  # [F]
    frequency: Tensor  # W, [features, F]
    phase: Tensor  # b, [features]

    def __init__(self, inputs: int, features: int = 500) -> None:
        super().__init__(inputs + features)
        self.inputs = inputs
        self.register_buffer("seed", torch.randint(2**62, (), device="cpu"))
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("deviation", torch.ones(inputs))
        self.register_buffer("frequency", torch.empty(features, inputs), persistent=False)
        self.register_buffer("phase", torch.empty(features), persistent=False)
        self.draw()

    def draw(self) -> None:
        """Draw W and b from the seed."""
        if self.phase.is_meta:  # only its size is asked for
            return
        generator = torch.Generator().manual_seed(int(self.seed))
        features, inputs = self.frequency.shape
        spread = math.sqrt(2 / inputs)
        self.frequency.copy_(spread * torch.randn(features, inputs, generator=generator))
        self.phase.copy_(2 * math.pi * torch.rand(features, generator=generator))

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        """PyTorch's way into each module that a state is loaded into."""
        super()._load_from_state_dict(*args, **kwargs)
        self.draw()

    def check_inputs(self, x: Tensor) -> None:
        """Reject inputs of another size."""
        if x.ndim < 2 or math.prod(x.shape[1:]) != self.inputs:
            raise InputError(
                f"these features are of {self.inputs} numbers, the inputs are {list(x.shape[1:])}"
            )

    def fit_features(self, x: Tensor, generator: torch.Generator) -> None:
        """Set mean and deviation."""
        del generator
        x = as_float(x, torch.float64).double().flatten(1)
        deviation, mean = torch.std_mean(x, dim=0, correction=0)
        self.mean.copy_(mean)
        self.deviation.copy_(known_deviation(deviation, x.abs().amax(dim=0)))

    def features(self, x: Tensor) -> Tensor:
        """The standardised input and the cosines, ``[B, F + features]``."""
        x = as_float(x, self.mean.dtype).to(self.mean.dtype).flatten(1)
        z = ((x - self.mean) / self.deviation).clamp(-LARGEST, LARGEST)
        waves = F.linear(z, self.frequency, self.phase).cos()
        return torch.cat([z, math.sqrt(2) * waves], dim=1)
