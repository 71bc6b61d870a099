"""Features that do not move: fitted once, to the first inputs of a stream, and never changed."""

import math
from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.networks.mlp import ModeFreeModule

# Standardised inputs further from the mean are cut off here: what the first inputs say of the scale
# may be far from what comes, and sums of squares of features have to stay finite.
LARGEST = 1e4
MOST_DISTINCT = 1000  # inputs that features are fitted to
# Mean squared length of an embedding, of the order of the other networks', whatever the dimension:
# step sizes that suit those then suit these.
SQUARED_LENGTH = 20


class FixedFeatures(ModeFreeModule):
    """An embedding ``factor (features(x) - centre)`` without parameters, which ``fit`` sets once.

    Features of the first inputs have mean 0 and a mean squared length of 20. Without that, what all
    inputs have in common would outweigh the rest, and a linear head hardly learns.

    Buffers have their final shapes from the start, and embeddings of the right shape come out
    before ``fit``, too: states and inputs can be checked at any time.

    Args:
        dim: Features of an input.
    """

    frozen = True  # the same embedding of an input, always
    first_examples = 100  # inputs that `fit` looks at; it makes do with fewer
    distinct = False  # whether it looks at all that differ instead: their order then means nothing
    fitted: Tensor  # [], whether `fit` was called
    centre: Tensor  # [D]
    factor: Tensor  # []

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))
        self.register_buffer("centre", torch.zeros(dim))
        self.register_buffer("factor", torch.ones(()))

    @torch.no_grad()
    def fit(self, x: Tensor, generator: torch.Generator) -> None:
        """Fit to the first of the inputs ``x [N, ...]``, bytes or floats; for good.

        Args:
            x: Inputs of the form that ``forward`` takes; those after ``first_examples`` are not
                looked at, unless ``distinct``.
            generator: What is drawn is drawn from it.
        """
        if bool(self.fitted):
            raise InputError("these features are fitted and do not change: build new ones")
        self.check_inputs(x)
        if not len(x):
            raise InputError("features cannot be fitted to no inputs: give at least one")
        x = self._looked_at(x)
        self.fit_features(x.cpu(), generator)
        z = self.features(x).double()
        self.centre.copy_(z.mean(dim=0))
        spread = ((z - z.mean(dim=0)).square().sum() / max(1, len(z) - 1)).sqrt()
        spread = known_deviation(spread, z.abs().max(), otherwise=math.sqrt(self.dim))
        self.factor.copy_(math.sqrt(SQUARED_LENGTH) / spread)
        self.fitted.fill_(True)

    def _looked_at(self, x: Tensor) -> Tensor:
        """What ``fit`` looks at; of many distinct inputs, some from all over their range."""
        if not self.distinct:
            return x[: self.first_examples]
        different: Tensor = torch.unique(x, dim=0)
        number = min(len(different), MOST_DISTINCT)
        return different[torch.arange(number) * len(different) // number]

    def forward(self, x: Tensor) -> Tensor:
        """``[B, ...]`` bytes or floats ``-> [B, D]``."""
        self.check_inputs(x)
        return (self.features(x) - self.centre) * self.factor

    @abstractmethod
    def check_inputs(self, x: Tensor) -> None:
        """Reject inputs of another shape, in one line."""

    @abstractmethod
    def fit_features(self, x: Tensor, generator: torch.Generator) -> None:
        """Set the buffers that ``features`` needs, in place, from inputs on the CPU."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """``[B, ...] -> [B, D]``, as yet neither centred nor scaled."""


def unfitted_features(network: nn.Module) -> Iterator[FixedFeatures]:
    """Those within a network that are still to be fitted."""
    for module in network.modules():
        if isinstance(module, FixedFeatures) and not bool(module.fitted):
            yield module


def known_deviation(deviation: Tensor, size: Tensor, otherwise: float = 1.0) -> Tensor:
    """Deviations ``[...]`` to divide by; ``otherwise`` where it is rounding of ``size``."""
    return deviation.masked_fill(deviation <= 1e-6 * size, otherwise)
