"""The saved parts of a learner: each can tell its state, judge another, and take it over."""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor, nn

from deepccg.core import Config, Learner, State, StateMismatch
from deepccg.learners.inputs import kind_of

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


FORMAT = 2


def upgraded(state: State) -> State:
    """The state in the present format; ``state`` itself is not changed."""
    number = state.meta.get("format") if isinstance(state.meta, dict) else None
    if type(number) is not int or not 1 <= number <= FORMAT:
        newer = type(number) is int and number > FORMAT
        raise StateMismatch(
            f"the state has format {number!r}, this version reads 1 to {FORMAT}"
            + (": install a later deepccg" if newer else "")
        )
    for step in range(number, FORMAT):
        try:
            state = State(state.tensors, {**_STEPS[step](state), "format": step + 1})
        except (AttributeError, KeyError, TypeError) as error:
            raise StateMismatch(f"the state of format {number} is incomplete: {error!r}") from error
    return state


def _from_1(state: State) -> dict[str, Any]:
    """The form of the inputs is that of the stored examples; without any it is not known."""
    stored = state.tensors["memory.x"]
    known = len(stored) > 0
    form = {
        "shape": list(stored.shape[1:]) if known else None,
        "kind": kind_of(stored) if known else None,
    }
    return {**state.meta, "parts": {**state.meta["parts"], "inputs": form}}


_STEPS: dict[int, Callable[[State], dict[str, Any]]] = {1: _from_1}


ConfigT = TypeVar("ConfigT", bound=Config)

# What a state that somebody has tampered with can make of ``check`` and ``load``.
_BROKEN = (
    AttributeError, IndexError, KeyError, OverflowError, RuntimeError, TypeError, ValueError,
)  # fmt: skip


class SavedLearner(Learner, Generic[ConfigT]):
    """A learner that is the sum of its ``parts``: saving, loading and refusing follow from them."""

    Config: ClassVar[type[Config]]
    config: ConfigT
    device: torch.device
    dtype: torch.dtype
    steps: int
    _guarded = False

    @abstractmethod
    def parts(self) -> dict[str, Part]:
        """Everything that is saved, by name."""

    def extra_columns(self, classes: int) -> dict[str, Column]:
        """What the memory holds of each example besides itself, in a state of ``classes`` outputs.

        A subclass that tells has states with other columns refused.
        """
        del classes
        return {}

    def state_dict(self) -> State:
        """See ``Learner``."""
        tensors: dict[str, Tensor] = {}
        meta: dict[str, Any] = {}
        for name, part in self.parts().items():
            state = part.state()
            tensors |= {f"{name}.{key}": value for key, value in state.tensors.items()}
            meta[name] = state.meta
        header = {
            "format": FORMAT,
            "method": type(self).__name__,
            "config": self.config_dict(),
            "steps": self.steps,
        }
        return State(tensors, {**header, "parts": meta})

    def load_state_dict(self, state: State) -> None:
        """See ``Learner``."""
        state = upgraded(state)
        try:
            wanted = self._matching_parts(state)
        except StateMismatch:
            raise
        except _BROKEN as error:
            raise StateMismatch(f"the state is incomplete: {error!r}") from error
        try:
            with self.all_or_nothing(often=False):
                for name, part in self.parts().items():
                    part.load(wanted[name])
        except _BROKEN as error:  # what no check foresaw
            raise StateMismatch(f"the state cannot be loaded: {error!r}") from error
        self.steps = state.meta["steps"]

    @contextmanager
    def all_or_nothing(self, *, often: bool = True) -> Iterator[None]:
        """What fails within leaves the learner as it was before the outermost of these blocks.

        Args:
            often: Keep room for the copies, for the next time.
        """
        if self._guarded:
            yield
            return
        undo_part = undo_of if often else undo_by_state
        undo, steps, self._guarded = list(map(undo_part, self.parts().values())), self.steps, True
        try:
            yield
        except BaseException:
            for bring_back in undo:
                bring_back()
            self.steps = steps
            raise
        finally:
            self._guarded = False

    def config_dict(self) -> dict[str, Any]:
        """The method's fields as JSON values."""
        return self.config.model_dump(mode="json")

    def _same_fields(self, saved: object) -> bool:
        """Whether a state has this learner's fields; one it lacks, being older, had its default."""
        defaults = self.Config().model_dump(mode="json")
        return isinstance(saved, dict) and {**defaults, **saved} == self.config_dict()

    def _matching_parts(self, state: State) -> dict[str, State]:
        """The state of each part, after all of them found theirs in order."""
        meta = state.meta
        if meta.get("method") != type(self).__name__:
            raise StateMismatch(
                f"the state belongs to {meta.get('method')!r}, not to {type(self).__name__}"
            )
        if type(meta["steps"]) is not int or meta["steps"] < 0:
            raise StateMismatch(f"the state was saved after {meta['steps']!r} steps")
        if bad := state.not_finite():
            raise StateMismatch(f"the state's {bad[0]} is not finite: the learner had diverged")
        found: dict[str, State] = {}
        for name, part in self.parts().items():
            tensors = {
                key.removeprefix(f"{name}."): value.to(self.device)
                for key, value in state.tensors.items()
                if key.startswith(f"{name}.")
            }
            found[name] = State(tensors, meta["parts"][name])
            part.check(found[name])
        extras = self.extra_columns(len(found["outputs"].meta["classes"]))
        check_stored(found, self.dtype, extras)
        if not self._same_fields(meta.get("config")):
            warnings.warn("the state was saved with other method fields", stacklevel=3)
        return found
