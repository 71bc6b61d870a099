"""The checkpoint of a run: the newest file that is whole, or else the one before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepccg.core import State, StateMismatch
from deepccg.learners.state_file import UnusableStateFile, load_state
from deepccg.records import RunDirectory


class CheckpointWarning(UserWarning):
    """The newest checkpoint could not be used, the one before could."""


@dataclass(frozen=True)
class Checkpoint:
    """The saved state of a run.

    Args:
        state: The state of the learner.
        about: Facts about the run: position, data, number of records, audit.
        instead_of: Why this is the previous checkpoint; ``None`` for the newest.
    """

    state: State
    about: dict[str, Any]
    instead_of: str | None = None


def load_checkpoint(path: Path) -> tuple[State, dict[str, Any]]:
    """Return the verified state and what the run said about it; see ``load_state``."""
    try:
        return load_state(path)
    except FileNotFoundError:
        raise UnusableStateFile(
            f"{path.parent} has no checkpoint: it is not a run that learned"
        ) from None


def load_newest(target: RunDirectory) -> Checkpoint:
    """Return the newest undamaged checkpoint of a run: the last, or else the one before."""
    try:
        return Checkpoint(*load_checkpoint(target.checkpoint_path))
    except UnusableStateFile as error:
        newest = error
    if not target.previous_path.exists():
        raise StateMismatch(str(newest))
    try:
        state, about = load_checkpoint(target.previous_path)
    except UnusableStateFile as older:
        raise StateMismatch(f"{newest}; and {older}: remove both to begin again") from None
    step = f"step {about.get('position')}"
    return Checkpoint(state, about, f"{newest}; taking the previous checkpoint, of {step}")
