"""The number of the saved state's format, and the way of older states to the present one.

A change that an older reader would misread raises ``FORMAT`` by one and adds a function to
``_STEPS``, which stays for good: a state of format n goes through the functions n, n + 1, ... A
state of a later format, or of none, is refused. Stored states of every format are among the tests.

1. Version 0.1 up to its first checkpoints.
2. The form of the inputs is saved, so that other inputs are refused after a resume, too.
"""

from collections.abc import Callable
from typing import Any

from deepccg.core import State, StateMismatch
from deepccg.methods.inputs import kind_of

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
