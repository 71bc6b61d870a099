"""Numbers that are kept for each trained parameter, whose rows grow with the classes."""

from collections.abc import Callable, Sequence
from itertools import zip_longest

import torch
from torch import Tensor

from deepccg.core import State, StateMismatch

AGE = "age"  # of each row, in steps


class PerParameter:
    """For each trained parameter some tensors of its shape, by kind, and how old each row is.

    Args:
        name: What messages call it.
        kinds: Names of the tensors.
        parameters: Returns the trained parameters, as they are now.
    """

    def __init__(
        self, name: str, kinds: Sequence[str], parameters: Callable[[], Sequence[Tensor]]
    ) -> None:
        self.name, self._parameters = name, parameters
        self.steps = 0
        self.kept: dict[str, list[Tensor]] = {kind: [] for kind in (*kinds, AGE)}

    @property
    def bytes(self) -> int:
        """Of all tensors."""
        return sum(tensor.nbytes for tensors in self.kept.values() for tensor in tensors)

    def age_of_rows(self, index: int, ndim: int) -> Tensor:
        """How many steps the rows of a parameter of ``ndim`` axes are old, ``[rows, 1, ...]``."""
        age = self.kept[AGE][index]
        return age.reshape(age.shape + (1,) * (ndim - age.ndim)).double()

    def begin_step(self) -> None:
        """Count a step; rows that are new have zeros and the age 1."""
        self.steps += 1
        parameters = self._parameters()
        for kind, tensors in self.kept.items():
            pairs = zip_longest(tensors, parameters)  # none yet before the first step
            tensors[:] = [_grown(tensor, parameter, kind) for tensor, parameter in pairs]
        torch._foreach_add_(self.kept[AGE], 1)

    def state(self) -> State:
        """Copies of all tensors, and how many steps there were."""
        tensors = {
            f"{kind}.{i}": tensor.clone()
            for kind, tensors in self.kept.items()
            for i, tensor in enumerate(tensors)
        }
        return State(tensors, {"steps": self.steps})

    def check(self, state: State) -> None:
        """Tensors for all parameters, of any number of rows; or none before the first step."""
        if type(state.meta["steps"]) is not int or state.meta["steps"] < 0:
            raise StateMismatch(f"the state's {self.name} counts {state.meta['steps']!r} steps")
        wanted = self._parameters() if state.meta["steps"] else ()
        expected = {
            f"{kind}.{i}": (_shape(parameter, kind)[1:], _dtype(parameter, kind))
            for kind in self.kept
            for i, parameter in enumerate(wanted)
        }
        found = {key: (tensor.shape[1:], tensor.dtype) for key, tensor in state.tensors.items()}
        if found != expected:
            raise StateMismatch(f"the state's {self.name} is of other parameters")

    def load(self, state: State) -> None:
        """Copy the state's values in."""
        self.steps = int(state.meta["steps"])
        count = len(state.tensors) // len(self.kept)
        for kind, tensors in self.kept.items():
            tensors[:] = [state.tensors[f"{kind}.{i}"].clone() for i in range(count)]

    def require_fit(self) -> None:
        """Reject rows that the parameters do not have; both must be loaded."""
        for kind, tensors in self.kept.items():
            wanted = [_shape(parameter, kind) for parameter in self._parameters()]
            if tensors and [tensor.shape for tensor in tensors] != wanted:
                raise StateMismatch(f"the state's {self.name} has other rows than the parameters")


def _shape(parameter: Tensor, kind: str) -> torch.Size:
    return parameter.shape[:1] if kind == AGE else parameter.shape


def _dtype(parameter: Tensor, kind: str) -> torch.dtype:
    return torch.int64 if kind == AGE else parameter.dtype


def _grown(tensor: Tensor | None, parameter: Tensor, kind: str) -> Tensor:
    """What is kept for a parameter, with as many rows as it has; new ones are 0."""
    shape = _shape(parameter, kind)
    if tensor is not None and tensor.shape == shape:
        return tensor
    grown = torch.zeros(shape, dtype=_dtype(parameter, kind), device=parameter.device)
    if tensor is not None:
        grown[: len(tensor)] = tensor
    return grown
