"""How often new examples of each class were recently taken for another class."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepccg.core import State, StateMismatch
from deepccg.gaussian.selection import FloatArray

WINDOW = 20  # examples of its class that a rate averages over


class ClassErrorRates:
    """A moving average for each class over its own examples; examples of others do not age it.

    It is part of the learner's state; a class without examples has the rate 0.
    """

    def __init__(self) -> None:
        self.rates: FloatArray = np.zeros(0)

    def update(self, y: Tensor, log_prob: Tensor, valid: Tensor) -> None:
        """Average in a step's batch.

        Args:
            y: The batch's class columns ``[B]``.
            log_prob: Log probabilities of the right classes where there is one; the batch's first.
            valid: Which examples of batch and replay have one, ``[B + R]``.
        """
        own = valid.cpu().numpy()[: len(y)]
        columns: npt.NDArray[np.int64] = y.cpu().numpy()[own]
        right = np.exp(log_prob.detach().cpu().numpy()[: len(columns)].astype(np.float64))
        self.note(columns, (1 - right).clip(0, 1))

    def note(self, y: npt.NDArray[np.int64], wrong: FloatArray) -> None:
        """Average in examples of class columns ``y [B]`` and error probabilities ``wrong [B]``."""
        if len(y) == 0:
            return
        self._grow(int(y.max()) + 1)
        count = np.bincount(y, minlength=len(self.rates))
        mean = np.bincount(y, wrong, minlength=len(self.rates)) / np.maximum(count, 1)
        self.rates += (1 - (1 - 1 / WINDOW) ** count) * (mean - self.rates)

    def of(self, classes: Sequence[int]) -> FloatArray:
        """The rates of class columns ``[K]``."""
        self._grow(max(classes, default=-1) + 1)
        return self.rates[list(classes)]

    def _grow(self, columns: int) -> None:
        if columns > len(self.rates):
            self.rates = np.pad(self.rates, (0, columns - len(self.rates)))

    def state(self) -> State:
        """Return the rates."""
        return State({"rates": torch.tensor(self.rates.tolist(), dtype=torch.float64)}, {})

    def check(self, state: State) -> None:
        """Reject anything but a probability for each of some classes."""
        rates = state.tensors["rates"]
        probable = bool(((rates >= 0) & (rates <= 1)).all())
        if rates.dim() != 1 or rates.dtype != torch.float64 or not probable:
            raise StateMismatch("the state's rates of errors are not probabilities")

    def load(self, state: State) -> None:
        """Continue from the state's rates."""
        self.rates = state.tensors["rates"].cpu().numpy().copy()


def without_rates(state: State, part: str) -> State:
    """Return a state without error rates, whatever it had before."""
    name = f"{part}.rates"
    tensors = {**state.tensors, name: torch.zeros(0, dtype=torch.float64)}
    return State(tensors, {**state.meta, "parts": {**state.meta["parts"], part: {}}})
