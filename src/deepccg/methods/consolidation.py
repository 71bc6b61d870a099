"""The quadratic penalties of all finished tasks, merged into one."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from deepccg.core import State, StateMismatch


class Consolidation:
    """What EWC holds of the past, one tensor of each kind per trained parameter.

    Args:
        parameters: What is trained, by name. The first axis may grow; new entries start at 0.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter]) -> None:
        self.names = list(parameters)
        self.fisher = [torch.zeros_like(p) for p in parameters.values()]  # F, finished tasks' sum
        self.centre = [torch.zeros_like(p) for p in parameters.values()]  # c
        self.running = [torch.zeros_like(p) for p in parameters.values()]  # this task's squares
        self.examples = 0  # how many are in ``running``
        self.changes = 0  # how often F or c became other numbers

    def grow(self, parameters: Sequence[Tensor]) -> None:
        """Have the shapes of ``parameters``."""
        for tensors in (self.fisher, self.centre, self.running):
            for i, (tensor, parameter) in enumerate(zip(tensors, parameters, strict=True)):
                if tensor.shape != parameter.shape:
                    missing = parameter.new_zeros(len(parameter) - len(tensor), *tensor.shape[1:])
                    tensors[i] = torch.cat([tensor, missing.detach()])
                    self.changes += 1

    def note(self, squares: Sequence[Tensor], examples: int) -> None:
        """Add squared gradients, summed over ``examples`` of the present task."""
        for running, square in zip(self.running, squares, strict=True):
            running += square
        self.examples += examples

    def close_task(self, parameters: Sequence[Tensor], average: bool) -> None:
        """Take the task's Fisher and final parameters in, and begin the next task's."""
        state = zip(self.fisher, self.centre, self.running, parameters, strict=True)
        for fisher, centre, running, parameter in state:
            of_task = running / max(self.examples, 1)
            fisher += of_task
            # The average of theta*_1 ... theta*_t with weights F_1 ... F_t, as a running mean.
            share = (of_task / fisher).nan_to_num(0.0) if average else 1.0
            centre.lerp_(parameter.detach(), share)
            running.zero_()
        self.examples = 0
        self.changes += 1

    def _tensors(self) -> dict[str, Tensor]:
        kinds = {"fisher": self.fisher, "centre": self.centre, "running": self.running}
        return {
            f"{kind}.{name}": tensor
            for kind, tensors in kinds.items()
            for name, tensor in zip(self.names, tensors, strict=True)
        }

    def state(self) -> State:
        """Copies of all tensors, and the count."""
        tensors = {name: tensor.clone() for name, tensor in self._tensors().items()}
        return State(tensors, {"examples": self.examples})

    def check(self, state: State) -> None:
        """Same names and precision, and shapes that differ in the first axis at most."""
        int(state.meta["examples"])
        if state.tensors.keys() != self._tensors().keys():
            raise StateMismatch("the state's penalty is of other parameters")
        for name, own in self._tensors().items():
            other = state.tensors[name]
            if (other.ndim, other.shape[1:], other.dtype) != (own.ndim, own.shape[1:], own.dtype):
                raise StateMismatch(
                    f"the state's {name} is {list(other.shape)} {other.dtype}, "
                    f"this learner's {list(own.shape)} {own.dtype}"
                )

    def load(self, state: State) -> None:
        """Copy the state's values in."""
        self.fisher, self.centre, self.running = (
            [state.tensors[f"{kind}.{name}"].clone() for name in self.names]
            for kind in ("fisher", "centre", "running")
        )
        self.examples = int(state.meta["examples"])
        self.changes += 1
