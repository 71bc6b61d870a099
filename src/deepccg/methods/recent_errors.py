"""How often the new examples of each class were lately taken for another."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepccg.core import State, StateMismatch
from deepccg.gaussian.selection import FloatArray

WINDOW = 20  # examples of its class that a rate looks back on


class RecentErrors:
    """A moving average for each class, over its own examples: no class makes another's older.

    It is a part of the learner's state; a class that it knows nothing of has the rate 0.
    """

    def __init__(self) -> None:
        self.rates: FloatArray = np.zeros(0)

    def note(self, y: npt.NDArray[np.int64], wrong: FloatArray) -> None:
        """Take in new examples.

        Args:
            y: Their class columns ``[B]``.
            wrong: The probability that each had of being taken for another class, ``[B]``.
        """
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
        """The rates."""
        return State({"rates": torch.tensor(self.rates.tolist(), dtype=torch.float64)}, {})

    def check(self, state: State) -> None:
        """One probability for each of some classes."""
        rates = state.tensors["rates"]
        probable = bool(((rates >= 0) & (rates <= 1)).all())
        if rates.dim() != 1 or rates.dtype != torch.float64 or not probable:
            raise StateMismatch("the state's rates of errors are not probabilities")

    def load(self, state: State) -> None:
        """Go on from the state's rates."""
        self.rates = state.tensors["rates"].cpu().numpy().copy()


def without_rates(state: State, part: str) -> State:
    """A state that knows of no errors, whatever it knew before."""
    name = f"{part}.rates"
    tensors = {**state.tensors, name: torch.zeros(0, dtype=torch.float64)}
    return State(tensors, {**state.meta, "parts": {**state.meta["parts"], part: {}}})


def batch_errors(
    y: Tensor, terms: Tensor, exist: Tensor
) -> tuple[npt.NDArray[np.int64], FloatArray]:
    """What to ``note`` of a step's loss: classes and probabilities of being taken for another.

    Args:
        y: The batch's class columns ``[B]``.
        terms: Log probabilities of the right classes, of those that have one; the batch's first.
        exist: Which examples of batch and replay have one, ``[B + R]``.
    """
    own = exist.cpu().numpy()[: len(y)]
    known = y.cpu().numpy()[own]
    right = np.exp(terms.detach().cpu().numpy()[: len(known)].astype(np.float64))
    return known, (1 - right).clip(0, 1)
