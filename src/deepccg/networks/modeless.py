"""Networks that compute the same in training and in evaluation."""

from typing import Self

from torch import nn


class Modeless(nn.Module):
    """A network without parts that depend on the mode: they need not be told of it.

    A step changes the mode twice, and to tell eight modules takes a twentieth of a small one.
    """

    def train(self, mode: bool = True) -> Self:
        """As ``nn.Module.train``, for this module alone."""
        self.training = mode
        return self
