"""An exponential average of the weights, to predict with."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from deepccg.learners.per_parameter import PerParameter


class WeightAverage(PerParameter):
    """``s_t / (1 - decay^t)`` with ``s_t = decay s_(t-1) + (1 - decay) w_t`` and ``s_0 = 0``.

    So that after t steps the weights count as 1, decay, decay^2, ... backwards, and the initial
    ones not at all. For the rows of a head t counts the steps since they came.
    """

    def __init__(self, decay: float, parameters: Callable[[], Sequence[Tensor]]) -> None:
        super().__init__("average of the weights", ("mean",), parameters)
        self.decay = decay

    @torch.no_grad()
    def update(self) -> None:
        """Take the weights in after an optimiser step."""
        self.begin_step()
        for i, (weight, mean) in enumerate(zip(self._parameters(), self.kept["mean"], strict=True)):
            share = (1 - self.decay) / (1 - self.decay ** self.age_of_rows(i, mean.ndim))
            mean.lerp_(weight.detach(), share.to(mean.dtype).expand_as(mean))

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Inside, the parameters are the averages; nothing is copied."""
        parameters, means = self._parameters(), self.kept["mean"]
        own = [parameter.data for parameter in parameters]
        try:
            for parameter, mean in zip(parameters, means, strict=False):  # none before a step
                new = parameter.data[len(mean) :] if mean.ndim else mean.new_zeros(0)
                parameter.data = torch.cat([mean, new]) if len(new) else mean
            yield
        finally:
            for parameter, weight in zip(parameters, own, strict=True):
                parameter.data = weight
