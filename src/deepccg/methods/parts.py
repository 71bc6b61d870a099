"""The saved parts of a learner: each can tell its state, judge another, and take it over."""

from collections.abc import Callable, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from deepccg.core import State, StateMismatch
from deepccg.methods.inputs import kind_of

Column = tuple[tuple[int, ...], torch.dtype]  # shape of one entry, and type


class Part(Protocol):
    """Something a learner owns that the next step depends on."""

    def state(self) -> State:
        """What to save; tensors are copies."""

    def check(self, state: State) -> None:
        """Raise ``StateMismatch`` (or ``KeyError``) if ``load`` would fail; change nothing."""

    def load(self, state: State) -> None:
        """Continue exactly from ``state``."""


class ModulePart:
    """A module's parameters and buffers. With ``grows``, the first axis may differ."""

    def __init__(self, name: str, module: nn.Module, grows: bool = False) -> None:
        self.name, self.module, self.grows = name, module, grows
        self._spare: tuple[list[Tensor], list[Tensor]] | None = None  # parameters, room for them

    def state(self) -> State:
        """A copy of every parameter and buffer."""
        tensors = {k: v.clone() for k, v in self.module.state_dict().items()}
        return State(tensors, {})

    def check(self, state: State) -> None:
        """Same names, same shapes, same precision."""
        skip = 1 if self.grows else 0
        own = self.module.state_dict()
        mine = {k: (tuple(v.shape[skip:]), v.dtype) for k, v in own.items()}
        theirs = {k: (tuple(v.shape[skip:]), v.dtype) for k, v in state.tensors.items()}
        if mine != theirs:
            differing = sorted(
                key for key in mine.keys() | theirs.keys() if mine.get(key) != theirs.get(key)
            )
            raise StateMismatch(
                f"the {self.name} differs from the state's at {differing[0]}: "
                f"{mine.get(differing[0])} here, {theirs.get(differing[0])} there"
            )

    def load(self, state: State) -> None:
        """Copy the state's values in."""
        if self.grows:
            for key, value in state.tensors.items():
                self.module.register_parameter(key, nn.Parameter(value.clone()))
        else:
            self.module.load_state_dict(state.tensors)

    def undo(self) -> Callable[[], None]:
        """See ``undo_of``; the next call takes back what an earlier one returned.

        Copying into the same room again is several times as fast as a state of one's own, and
        every step of a classifier begins with it.
        """
        if self._spare is None:
            own = [parameter.detach() for parameter in self.module.parameters()]
            # What grows, and buffers, may be other tensors after every step.
            if not own or self.grows or next(self.module.buffers(), None) is not None:
                return undo_by_state(self)
            self._spare = own, [torch.empty_like(parameter) for parameter in own]
        own, room = self._spare
        torch._foreach_copy_(room, own)
        return lambda: torch._foreach_copy_(own, room)


class GeneratorPart:
    """A private random generator."""

    def __init__(self, generator: torch.Generator) -> None:
        self.generator = generator

    def state(self) -> State:
        """The generator's bytes."""
        return State({"state": self.generator.get_state()}, {})

    def check(self, state: State) -> None:
        """The right number of bytes."""
        if state.tensors["state"].shape != self.generator.get_state().shape:
            raise StateMismatch("the state's random generator is of another kind")

    def load(self, state: State) -> None:
        """Draw from now on what the saved generator would have drawn."""
        self.generator.set_state(state.tensors["state"].cpu())


def undo_of(part: Part) -> Callable[[], None]:
    """What brings a part back to what it is now, if it is called before the next ``undo_of``."""
    return part.undo() if isinstance(part, ModulePart) else undo_by_state(part)


def undo_by_state(part: Part) -> Callable[[], None]:
    """The same, of any part and for any time, and slower."""
    before = part.state()
    return lambda: part.load(before)


def check_stored(
    found: Mapping[str, State], dtype: torch.dtype, extras: Mapping[str, Column]
) -> None:
    """Refuse stored examples of classes, tasks or a form that the state does not know.

    Args:
        found: The states of a learner's parts.
        dtype: The network's precision, which floating columns have.
        extras: Shape and type of what is stored with each example, where that is told.
    """
    needed = ("memory", "outputs", "inputs")
    if not found.keys() >= set(needed):  # a learner of one's own may save less
        return
    memory, outputs, inputs = (found[name] for name in needed)
    if not len(memory.tensors["y"]):
        return
    limits = {"y": len(outputs.meta["classes"]), "task": len(outputs.meta["tasks"]) + 1}
    for name, limit in limits.items():
        column = memory.tensors[name]
        if not bool(((column >= 0) & (column < limit)).all()):
            raise StateMismatch(f"the state's memory holds {name} outside 0 to {limit - 1}")
    x = memory.tensors["x"]
    if list(x.shape[1:]) != inputs.meta["shape"] or kind_of(x) != inputs.meta["kind"]:
        raise StateMismatch(f"the state's memory holds {list(x.shape[1:])} {x.dtype}")
    for name, column in memory.tensors.items():
        if column.is_floating_point() and column.dtype != dtype:
            raise StateMismatch(f"the state's memory holds {name} of {column.dtype}, not {dtype}")
    for name, (shape, kind) in extras.items():
        column = memory.tensors[name]
        if (tuple(column.shape[1:]), column.dtype) != (shape, kind):
            raise StateMismatch(
                f"the state's memory holds {name} {list(column.shape[1:])} {column.dtype}, "
                f"not {list(shape)} {kind}"
            )
