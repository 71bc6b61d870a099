"""Features that do not move: fitted once, to the first inputs of a stream, and never changed."""

from abc import abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from deepccg.core import InputError
from deepccg.networks.mlp import ModeFreeModule

# Standardised inputs further from the mean are cut off here: what the first inputs say of the scale
# may be far from what comes, and sums of squares of features have to stay finite.
LARGEST = 1e4


class FixedFeatures(ModeFreeModule):
    """An embedding without parameters, whose buffers ``fit`` sets once.

    Buffers have their final shapes from the start, and features of the right shape come out before
    ``fit``, too: a state can be checked and loaded, and inputs can be checked, at any time.

    Args:
        dim: Features of an input.
    """

    first_examples = 100  # inputs that `fit` looks at; it makes do with fewer
    fitted: Tensor  # [], whether `fit` was called

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.register_buffer("fitted", torch.zeros((), dtype=torch.bool))

    @torch.no_grad()
    def fit(self, x: Tensor, generator: torch.Generator) -> None:
        """Fit to the first of the inputs ``x [N, ...]``, bytes or floats; for good.

        Args:
            x: Inputs of the form that ``forward`` takes; those after ``first_examples`` are not
                looked at.
            generator: What is drawn is drawn from it.
        """
        if bool(self.fitted):
            raise InputError("these features are fitted and do not change: build new ones")
        self.check_inputs(x)
        if not len(x):
            raise InputError("features cannot be fitted to no inputs: give at least one")
        self.fit_buffers(x[: self.first_examples].cpu(), generator)
        self.fitted.fill_(True)

    @abstractmethod
    def check_inputs(self, x: Tensor) -> None:
        """Reject inputs of another shape, in one line."""

    @abstractmethod
    def fit_buffers(self, x: Tensor, generator: torch.Generator) -> None:
        """Set the buffers in place, from inputs on the CPU."""


def unfitted_features(network: nn.Module) -> Iterator[FixedFeatures]:
    """Those within a network that are still to be fitted."""
    for module in network.modules():
        if isinstance(module, FixedFeatures) and not bool(module.fitted):
            yield module


def positive_or_one(deviation: Tensor, size: Tensor) -> Tensor:
    """Standard deviations ``[...]`` to divide by: 1 where it is rounding of values of ``size``."""
    varies = deviation > 1e-6 * size
    return torch.where(varies, deviation, torch.ones_like(deviation))
