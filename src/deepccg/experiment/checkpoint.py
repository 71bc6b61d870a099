"""A learner's state in one file: safetensors, with everything else as JSON in its header.

The header says ``format``, ``state`` and ``about``, and ``checksum``: BLAKE2b over all of these
and every tensor. A change that an older reader would misread raises ``FORMAT``; ``UPGRADES`` then
gets a function that makes a header and tensors of the format before into the new ones.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from deepccg.core import State, StateMismatch
from deepccg.records import RunDirectory, write_atomically

FORMAT = 1
Content = tuple[dict[str, Any], dict[str, Tensor]]
UPGRADES: dict[int, Callable[[Content], Content]] = {}  # from each older format to the next

_HEADER = "deepccg"


class CheckpointWarning(UserWarning):
    """The newest checkpoint could not be used, the one before could."""


class _Unusable(StateMismatch):
    """Damaged or not there: the checkpoint before may do."""


@dataclass(frozen=True)
class Checkpoint:
    """What was saved.

    Args:
        state: The learner's.
        about: What the run said of it.
        instead_of: Why it is the previous checkpoint; ``None`` for the newest.
    """

    state: State
    about: dict[str, Any]
    instead_of: str | None = None


def save_checkpoint(
    path: Path, state: State, about: Mapping[str, Any], previous: Path | None = None
) -> None:
    """Replace the file at once, and keep the old one as ``previous``."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()}
    said = {"format": FORMAT, "state": state.meta, "about": dict(about)}
    header = json.dumps({"checksum": _checksum(said, tensors), **said}, allow_nan=False)
    write_atomically(path, safetensors.torch.save(tensors, {_HEADER: header}), previous)


def load_checkpoint(path: Path) -> tuple[State, dict[str, Any]]:
    """The state and what was said about it, verified. Nothing in the file can run code."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            said = json.loads((file.metadata() or {})[_HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = said.pop("checksum")
        number = int(said["format"])
        _refuse_newer(path, number)
        if checksum != _checksum(said, tensors):
            raise ValueError("its checksum is wrong")
        for older in range(number, FORMAT):
            said, tensors = UPGRADES[older]((said, tensors))
        return State(tensors, dict(said["state"])), dict(said["about"])
    except FileNotFoundError:
        raise _Unusable(f"{path.parent} has no checkpoint: it is not a run that learned") from None
    except StateMismatch:
        raise
    except PermissionError as error:  # no damage: nothing may be put in its place
        raise StateMismatch(f"cannot read {path}: {error.strerror}") from None
    except (
        safetensors.SafetensorError, AttributeError, KeyError, TypeError, ValueError, OSError,
        RecursionError,
    ) as error:  # fmt: skip
        raise _Unusable(f"{path} is damaged or not a checkpoint: {_reason(error)}") from None


def load_newest(target: RunDirectory) -> Checkpoint:
    """The newest checkpoint of a run that is whole: the last, or else the one before."""
    try:
        return Checkpoint(*load_checkpoint(target.checkpoint_path))
    except _Unusable as error:
        newest = error
    if not target.previous_path.exists():
        raise StateMismatch(str(newest))
    try:
        state, about = load_checkpoint(target.previous_path)
    except _Unusable as older:
        raise StateMismatch(f"{newest}; and {older}: remove both to begin again") from None
    step = f"step {about.get('position')}"
    return Checkpoint(state, about, f"{newest}; taking the previous checkpoint, of {step}")


def _refuse_newer(path: Path, number: int) -> None:
    if number > FORMAT:
        raise StateMismatch(
            f"{path} has format {number}, and this version of deepccg reads up to {FORMAT}: "
            f"install a newer one"
        )


def _checksum(said: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(json.dumps(said).encode(), digest_size=32)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _reason(error: Exception) -> str:
    missing = isinstance(error, KeyError)
    return f"it has no {error}" if missing else " ".join(str(error).split())
