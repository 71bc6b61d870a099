"""Divergence ends a run with one line: when, what is left, what to do. Nothing of it is written."""

import contextlib
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from deepccg.core import Diverged, State, StepInfo
from deepccg.experiment.config import RunConfig
from deepccg.streams import Cursor

if TYPE_CHECKING:
    from deepccg.experiment.journal import Journal

USUAL = 0.1  # step size; whoever takes a thousand times that much need not divide by ten


def check_step(step: int, info: StepInfo) -> None:
    """Refuse to go on after a step that tells of anything but numbers."""
    for name, value in {"loss": info.loss, **info.extra}.items():
        if not math.isfinite(value):
            raise Diverged(f"{name} is {value} at step {step}: try a smaller lr")


def check_state(step: int, state: State) -> None:
    """Refuse to keep a state that holds anything but numbers."""
    if bad := state.not_finite():
        raise Diverged(f"{bad[0]} is not finite after step {step}: try a smaller lr")


@contextlib.contextmanager
def divergence_explained(config: RunConfig, journal: "Journal", cursor: Cursor) -> Iterator[None]:
    """Meanwhile, ``Diverged`` also says when, what is left and what may help."""
    try:
        yield
    except Diverged as error:
        lr = config.method.fields.get("lr")
        advice = ""
        if isinstance(lr, float):
            advice = f", such as --set method.lr={min(lr / 10, USUAL):g}"
        left = f"the checkpoint of step {journal.saved}" if journal.saved else "no checkpoint yet"
        step = f"after step {cursor.position} " if "step" not in str(error) else ""
        raise Diverged(f"{step}{error}{advice}; {journal.directory} holds {left}") from error
