"""What every method on a network saves, and how a state is judged and taken over."""

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from deepccg.core import Config, Learner, State, StateMismatch
from deepccg.methods.formats import FORMAT, upgraded
from deepccg.methods.parts import Column, Part, check_stored, undo_by_state, undo_of

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
