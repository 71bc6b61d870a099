"""A learner's state in one file: safetensors, with everything else as JSON in its header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch

from deepccg.core import State, StateMismatch
from deepccg.records import write_atomically

_HEADER = "deepccg"


def save_checkpoint(path: Path, state: State, about: Mapping[str, Any]) -> None:
    """Replace the file at once: a reader sees the old state or the new one, never a part."""
    header = json.dumps({"state": state.meta, "about": dict(about)}, allow_nan=False)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()}
    write_atomically(path, safetensors.torch.save(tensors, {_HEADER: header}))


def load_checkpoint(path: Path) -> tuple[State, dict[str, Any]]:
    """The state and what was said about it. Nothing in the file can run code."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})[_HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            return State(tensors, header["state"]), header["about"]
    except FileNotFoundError:
        raise StateMismatch(
            f"{path.parent} has no checkpoint: it is not a run that learned"
        ) from None
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        raise StateMismatch(f"{path} is damaged or not a checkpoint: {error}") from None
