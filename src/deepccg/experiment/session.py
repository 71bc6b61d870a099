"""Opening a run directory: who may write, what is there, where to go on."""

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout

from deepccg.core import InputError, InUse, Learner, StateMismatch, validated
from deepccg.experiment.checkpoint import Checkpoint, CheckpointWarning, load_newest
from deepccg.experiment.config import RunConfig
from deepccg.experiment.environment import environment
from deepccg.methods import METHODS
from deepccg.networks import gains_from_native
from deepccg.records import (
    RecordError,
    RunDirectory,
    is_temporary,
    remove_temporaries,
    rewind_records,
    write_atomically,
)
from deepccg.streams import Dataset, available, load_dataset


class ClassNeeded(InputError):
    """A run of a class of the user's own, which was not passed.

    Args:
        directory: The run.
        method: The name of the class, as it is recorded.
    """

    def __init__(self, directory: Path, method: str) -> None:
        super().__init__(f"{directory} was run with {method}: pass that class as learner")
        self.directory = directory
        self.method = method


def recorded_config(target: RunDirectory) -> RunConfig:
    """What a run directory says was run."""
    if not target.config_path.exists():
        raise InputError(f"{target.path} is not a run directory: it has no config.toml")
    return validated(RunConfig, target.config())


def recorded(
    target: RunDirectory, learner: type[Learner] | None = None
) -> tuple[RunConfig, type[Learner]]:
    """What a run directory says was run, and the learner's class.

    A class of the user's own has to be passed: a directory cannot make this import code.
    """
    config = recorded_config(target)
    chosen = learner or METHODS.get(config.method.name)
    if chosen is None:
        raise ClassNeeded(target.path, config.method.name)
    return config, chosen


def kernels_of(config: RunConfig, target: RunDirectory, shape: tuple[int, ...]) -> str:
    """What ``auto`` stands for: what the run was begun with, else what is faster here."""
    if config.kernels != "auto":
        return config.kernels
    if target.config_path.exists():  # runs begun before there was a choice say nothing
        return validated(RunConfig, {"kernels": "torch", **target.config()}).kernels
    return "native" if gains_from_native(config.network, shape) else "torch"


def folder_of(dataset: str) -> str | None:
    """The folder a data set's setting names; ``None`` for one that is known by name."""
    known = dataset.startswith("hf:") or dataset in {info.name for info in available()}
    return None if known else dataset.removeprefix("folder:")


def recorded_data(config: RunConfig, target: RunDirectory, data_dir: str | Path | None) -> Dataset:
    """The data set a configuration names; of a folder it has the name and not the place."""
    folder = folder_of(config.dataset)
    if folder is None:
        return load_dataset(config.dataset, data_dir=data_dir)
    if data_dir is None:
        raise InputError(f"{target.path} learned {folder!r}: say where that lies (--data-dir)")
    return load_dataset(f"folder:{data_dir}")


@dataclass(frozen=True)
class Opened:
    """How far a run directory is.

    Args:
        position: The first step still to do.
        records: How many records there are.
        audit: What the auditor left in the checkpoint.
    """

    position: int = 0
    records: int = 0
    audit: Mapping[str, Any] | None = None


@contextlib.contextmanager
def opened(
    config: RunConfig, target: RunDirectory, learner: Learner, about: Mapping[str, Any], steps: int
) -> Iterator[Opened]:
    """Begin a run or load what there is of it, with the directory locked meanwhile.

    A finished run is only read: that needs no lock and no right to write.

    Args:
        config: What is to be run; a directory of another run is refused.
        target: Where.
        learner: Gets the state of the last good checkpoint.
        about: What a checkpoint of the same data says of them.
        steps: How many steps the whole run has.
    """
    if not target.config_path.exists():
        _check_free(target)
    elif _decisive(validated(RunConfig, target.config())) != _decisive(config):
        raise InputError(f"{target.path} holds another run: choose another directory")
    finished = _finished(target, steps)
    if finished is not None:
        _load(finished, target, learner, about)
        yield Opened(steps, len(target.records()), finished.about.get("audit"))
        return
    with _locked(target):
        try:
            remove_temporaries(target.path)
            there = target.config_path.exists()
            state = _continue(target, learner, about) if there else _begin(config, target)
        except OSError as error:
            raise InputError(f"cannot write to {target.path}: {error.strerror}") from None
        yield state


def is_finished(config: RunConfig, target: RunDirectory) -> bool:
    """Whether a directory holds just this run, complete and undamaged. Needs no data."""
    try:
        if not target.config_path.exists():
            return False
        same = _decisive(validated(RunConfig, target.config())) == _decisive(config)
        steps = [evaluation.step for evaluation in target.evaluations() if evaluation.final]
    except (InputError, RecordError):  # told when the run is opened
        return False
    return same and bool(steps) and _finished(target, steps[-1]) is not None


@contextlib.contextmanager
def _locked(target: RunDirectory) -> Iterator[None]:
    """Only one process at a time; the lock of a killed process is gone with it."""
    lock = FileLock(target.lock_path, blocking=False)
    try:
        target.path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InUse(f"{target.path} is in use by another process: let it end first") from None
    except OSError as error:
        raise InputError(f"cannot write to {target.path}: {error.strerror}") from None
    try:
        yield
    finally:
        # While the lock is held: who opened the file before finds it without a name, and retries.
        with contextlib.suppress(OSError):
            target.lock_path.unlink(missing_ok=True)
        lock.release()


def _finished(target: RunDirectory, steps: int) -> Checkpoint | None:
    """The checkpoint of a run that is complete and undamaged."""
    try:
        saved = load_newest(target)
        complete = saved.instead_of is None and saved.about.get("position") == steps
        return saved if complete and target.finished else None
    except (StateMismatch, RecordError):  # told when the run is opened for writing
        return None


def _begin(config: RunConfig, target: RunDirectory) -> Opened:
    described = json.dumps(environment(config), indent=2)
    fields = config.model_dump(mode="json", exclude_none=True)
    write_atomically(target.environment_path, described.encode() + b"\n")
    write_atomically(target.config_path, tomli_w.dumps(fields).encode())
    return Opened()


def _continue(target: RunDirectory, learner: Learner, about: Mapping[str, Any]) -> Opened:
    if not target.checkpoint_path.exists() and not target.previous_path.exists():
        rewind_records(target.records_path, 0)
        return Opened()
    saved = load_newest(target)
    position = _load(saved, target, learner, about)
    records = rewind_records(target.records_path, position)
    if records != saved.about.get("records"):
        raise RecordError(
            f"{target.records_path} has {records} records up to step {position}, and the "
            f"checkpoint knows of {saved.about.get('records')}: the file was changed"
        )
    if saved.instead_of is not None:
        warnings.warn(saved.instead_of, CheckpointWarning, stacklevel=2)
        target.previous_path.replace(target.checkpoint_path)  # lest damage become the previous one
    return Opened(position, records, saved.about.get("audit"))


def _load(
    saved: Checkpoint, target: RunDirectory, learner: Learner, about: Mapping[str, Any]
) -> int:
    """Give the learner its state; returns the first step still to do."""
    if saved.about.get("stream") != about["stream"]:
        raise InputError(
            f"the data changed since {target.path} was begun: choose another directory"
        )
    position = saved.about.get("position")
    if not isinstance(position, int):
        raise StateMismatch(f"{target.checkpoint_path} does not say how far the run was")
    learner.load_state_dict(saved.state)
    return position


def _check_free(target: RunDirectory) -> None:
    """A new run begins in an empty directory, or in one whose beginning was cut off."""
    begun = {target.environment_path, target.lock_path, target.log_path}
    try:
        files = list(target.path.iterdir()) if target.path.exists() else []
    except OSError as error:
        raise InputError(f"cannot write to {target.path}: {error.strerror}") from None
    if any(file not in begun and not is_temporary(file) for file in files):
        raise InputError(f"{target.path} is not empty and holds no run: choose another directory")


def _decisive(config: RunConfig) -> dict[str, Any]:
    """What makes two runs the same. TOML has no None: a field left open is a field left out."""
    excluded = {"threads", "device", "kernels", "preset"}
    return config.model_dump(mode="json", exclude=excluded, exclude_none=True)
