"""A learner's state in one file: safetensors, with everything else as JSON in its header.

The header has ``format``, ``state`` and ``about``, and ``checksum``: BLAKE2b over all of these and
every tensor. A change that an older reader would misread increments ``FORMAT``; ``UPGRADES`` then
gets a function that converts header and tensors of the format before.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from io import FileIO
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from deepccg.core import State, StateMismatch
from deepccg.records import open_regular, write_atomically

FORMAT = 1
Content = tuple[dict[str, Any], dict[str, Tensor]]  # header, tensors
UPGRADES: dict[int, Callable[[Content], Content]] = {}  # from each older format to the next

_HEADER = "deepccg"


class UnusableStateFile(StateMismatch):
    """The file is damaged, or not a state file."""


def save_state(
    path: Path, state: State, about: Mapping[str, Any], previous: Path | None = None
) -> None:
    """Replace the file atomically, and keep the old one as ``previous``."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in state.tensors.items()}
    header = {"format": FORMAT, "state": state.meta, "about": dict(about)}
    text = json.dumps({"checksum": _checksum(header, tensors), **header}, allow_nan=False)
    write_atomically(path, safetensors.torch.save(tensors, {_HEADER: text}), previous)


def load_state(path: Path) -> tuple[State, dict[str, Any]]:
    """Return the verified state and its ``about``. Nothing in the file can run code.

    Raises:
        FileNotFoundError: There is no such file.
        UnusableStateFile: It is damaged.
        StateMismatch: It may not be read, or a newer version wrote it.
    """
    try:
        with (
            open_regular(path, links=True) as opened,
            safetensors.safe_open(_lasting_name(path, opened), framework="pt") as file,
        ):
            header = json.loads((file.metadata() or {})[_HEADER])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        checksum = header.pop("checksum")
        number = int(header["format"])
        if number > FORMAT:
            raise StateMismatch(
                f"{path} has format {number}, and this version of deepccg reads up to {FORMAT}: "
                f"install a newer one"
            )
        if checksum != _checksum(header, tensors):
            raise ValueError("its checksum is wrong")
        for older in range(number, FORMAT):
            header, tensors = UPGRADES[older]((header, tensors))
        return State(tensors, dict(header["state"])), dict(header["about"])
    except (FileNotFoundError, StateMismatch):
        raise
    except PermissionError as error:  # not damaged: nothing else may be used in its place
        raise StateMismatch(f"cannot read {path}: {error.strerror}") from None
    except (
        safetensors.SafetensorError, AttributeError, KeyError, TypeError, ValueError, OSError,
        RecursionError,
    ) as error:  # fmt: skip
        missing = isinstance(error, KeyError)
        reason = f"it has no {error}" if missing else " ".join(str(error).split())
        raise UnusableStateFile(f"{path} is damaged or not a checkpoint: {reason}") from None


def _lasting_name(path: Path, opened: FileIO) -> Path:
    """Return a name that stays with the file when another one takes its path.

    safetensors opens the name more than once, and would read the header of the one file and the
    tensors of the other.
    """
    lasting = Path("/dev/fd") / str(opened.fileno())
    return lasting if lasting.exists() else path


def _checksum(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str:
    digest = hashlib.blake2b(json.dumps(header).encode(), digest_size=32)
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
