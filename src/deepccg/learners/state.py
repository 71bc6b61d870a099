"""A learner's saved state: the parts it is made of, their validation, rollback, and the format.

A change that an older reader would misread raises ``FORMAT`` by one and adds a function to
``_UPGRADES``, which stays for good: a state of format n goes through the functions n, n + 1, ... A
state of a later format, or of none, is refused. Stored states of every format are among the tests.

1. Version 0.1 up to its first checkpoints.
2. The form of the inputs is saved, so that other inputs are refused after a resume, too.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from deepccg.core import State, StateMismatch, kind_of

FORMAT = 2

# What a state that somebody has tampered with can make of ``check`` and ``load``.
BROKEN_STATE = (
    AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError,
)  # fmt: skip

Column = tuple[tuple[int, ...], torch.dtype]  # shape of one entry, and type


class Stateful(Protocol):
    """Something a learner owns that the next step depends on."""

    def state(self) -> State:
        """Return what to save; tensors are copies."""

    def check(self, state: State) -> None:
        """Raise ``StateMismatch`` (or ``KeyError``) if ``load`` would fail; change nothing."""

    def load(self, state: State) -> None:
        """Continue exactly from ``state``."""


class StatefulModule:
    """A module's parameters and buffers. With ``grows``, the first axis may differ."""

    def __init__(self, name: str, module: nn.Module, grows: bool = False) -> None:
        self.name, self.module, self.grows = name, module, grows
        self._spare: tuple[list[Tensor], list[Tensor]] | None = None  # parameters, room for them

    def state(self) -> State:
        """A copy of every parameter and buffer."""
        tensors = {k: v.clone() for k, v in self.module.state_dict().items()}
        return State(tensors, {})

    def check(self, state: State) -> None:
        """Same names, same shapes, same precision, and what the module itself asks for."""
        if (own_check := getattr(self.module, "check_state", None)) is not None:
            own_check(state.tensors)
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

    def rollback_point(self) -> Callable[[], None]:
        """Return what brings the module back, if it is called before the next ``rollback_point``.

        Copying into the same tensors again is several times as fast as a new copy, and
        every step of a classifier begins with it.
        """
        if self._spare is None:
            own = [parameter.detach() for parameter in self.module.parameters()]
            # What grows, and buffers, may be other tensors after every step.
            if not own or self.grows or next(self.module.buffers(), None) is not None:
                return rollback_by_state(self)
            self._spare = own, [torch.empty_like(parameter) for parameter in own]
        own, room = self._spare
        torch._foreach_copy_(room, own)
        return lambda: torch._foreach_copy_(own, room)


class StatefulGenerator:
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


def _rollback_point(part: Stateful) -> Callable[[], None]:
    """Return what brings a part back, in its own way if it has one."""
    own: Callable[[], Callable[[], None]] | None = getattr(part, "rollback_point", None)
    return rollback_by_state(part) if own is None else own()


def rollback_by_state(part: Stateful) -> Callable[[], None]:
    """Return what brings any part back at any later time."""
    before = part.state()
    return lambda: part.load(before)


def check_stored(
    found: Mapping[str, State], dtype: torch.dtype, extras: Mapping[str, Column]
) -> None:
    """Refuse stored examples of classes, tasks or a form that the state does not know.

    Args:
        found: The states of a learner's parts.
        dtype: The network's precision, which floating columns have.
        extras: Shape and type of what is stored with each example, where it is known.
    """
    needed = ("memory", "outputs", "inputs")
    if not found.keys() >= set(needed):  # a user's learner may save less
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


def upgrade(state: State) -> State:
    """Return the state in the present format; ``state`` itself is not changed."""
    number = state.meta.get("format") if isinstance(state.meta, dict) else None
    if type(number) is not int or not 1 <= number <= FORMAT:
        newer = type(number) is int and number > FORMAT
        raise StateMismatch(
            f"the state has format {number!r}, this version reads 1 to {FORMAT}"
            + (": install a later deepccg" if newer else "")
        )
    for step in range(number, FORMAT):
        try:
            state = State(state.tensors, {**_UPGRADES[step](state), "format": step + 1})
        except (AttributeError, KeyError, TypeError) as error:
            raise StateMismatch(f"the state of format {number} is incomplete: {error!r}") from error
    return state


def _from_1(state: State) -> dict[str, Any]:
    """The form of the inputs is that of the stored examples; without any it is not known."""
    stored = state.tensors["memory.x"]
    form: dict[str, Any] = {"shape": None, "kind": None}
    if len(stored):
        form = {"shape": list(stored.shape[1:]), "kind": kind_of(stored)}
    return {**state.meta, "parts": {**state.meta["parts"], "inputs": form}}


_UPGRADES: dict[int, Callable[[State], dict[str, Any]]] = {1: _from_1}


def collect_state(parts: Mapping[str, Stateful]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the tensors of all parts, each under ``part.name``, and their other values by part."""
    tensors: dict[str, Tensor] = {}
    meta: dict[str, Any] = {}
    for name, part in parts.items():
        state = part.state()
        tensors |= {f"{name}.{key}": value for key, value in state.tensors.items()}
        meta[name] = state.meta
    return tensors, meta


def split_state(
    parts: Mapping[str, Stateful], state: State, device: torch.device
) -> dict[str, State]:
    """Return the state of each part, after the part has checked it."""
    found: dict[str, State] = {}
    for name, part in parts.items():
        tensors = {key: value.to(device) for key, value in tensors_of(name, state).items()}
        found[name] = State(tensors, state.meta["parts"][name])
        part.check(found[name])
    return found


def tensors_of(name: str, state: State) -> dict[str, Tensor]:
    """Return the tensors that ``collect_state`` has put under ``name``, by their own names."""
    prefix = f"{name}."
    return {k.removeprefix(prefix): v for k, v in state.tensors.items() if k.startswith(prefix)}


@contextmanager
def rolled_back_on_error(parts: Iterable[Stateful], *, often: bool) -> Iterator[None]:
    """Bring all parts back to what they were if the block raises anything.

    With ``often``, room for the copies is kept for the next time.
    """
    roll_back = [_rollback_point(part) if often else rollback_by_state(part) for part in parts]
    try:
        yield
    except BaseException:
        for bring_back in roll_back:
            bring_back()
        raise
