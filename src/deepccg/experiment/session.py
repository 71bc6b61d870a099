"""Opening a run directory: which run it holds, its newest checkpoint, and who may write to it."""

import contextlib
import errno
import json
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from filelock import FileLock, Timeout

from deepccg.core import CannotWrite, InputError, InUse, Learner, State, StateMismatch, validated
from deepccg.experiment.config import RunConfig
from deepccg.experiment.environment import environment
from deepccg.learners.state_file import UnusableStateFile, load_state
from deepccg.methods import METHODS
from deepccg.networks import gains_from_native
from deepccg.records import (
    RecordError,
    RunDirectory,
    check_regular,
    is_temporary,
    remove_temporaries,
    rewind_records,
    write_atomically,
)
from deepccg.streams import Dataset, available, load_dataset

LARGEST_CHECKPOINT = 1 << 36  # bytes; a network has at most 10^9 parameters


class ClassNeeded(InputError):
    """A run used a learner class of the user's own, recorded as ``method``; it was not passed."""

    def __init__(self, directory: Path, method: str) -> None:
        super().__init__(f"{directory} was run with {method}: pass that class as learner")
        self.directory, self.method = directory, method


def read_run_config(target: RunDirectory) -> RunConfig:
    """Return the configuration that a run directory records."""
    target.check()
    if not target.config_path.exists():
        raise InputError(f"{target.path} is not a run directory: it has no config.toml")
    return validated(RunConfig, target.config())


def recorded_learner(
    config: RunConfig, target: RunDirectory, learner: type[Learner] | None = None
) -> type[Learner]:
    """Return ``learner`` or the class of the recorded method.

    A class of the user's own has to be passed: a directory cannot make this import code.
    """
    chosen = learner or METHODS.get(config.method.name)
    if chosen is None:
        raise ClassNeeded(target.path, config.method.name)
    return chosen


def choose_kernels(config: RunConfig, target: RunDirectory, shape: tuple[int, ...]) -> str:
    """Return what ``auto`` stands for: the run's own choice, else what is faster here."""
    if config.kernels != "auto":
        return config.kernels
    if target.config_path.exists():  # runs older than this setting do not record it
        return validated(RunConfig, {"kernels": "torch", **target.config()}).kernels
    return "native" if gains_from_native(config.network, shape) else "torch"


def folder_of(dataset: str) -> str | None:
    """Return the folder that ``dataset`` names; ``None`` for a data set known by name."""
    known = dataset.startswith("hf:") or dataset in {info.name for info in available()}
    return None if known else dataset.removeprefix("folder:")


def recorded_data(config: RunConfig, target: RunDirectory, data_dir: str | Path | None) -> Dataset:
    """Load the data set of a recorded run, which holds a folder's name but not its path."""
    folder = folder_of(config.dataset)
    if folder is None:
        return load_dataset(config.dataset, data_dir=data_dir)
    if data_dir is None:
        raise InputError(f"{target.path} learned {folder!r}: say where that lies (--data-dir)")
    return load_dataset(f"folder:{data_dir}")


class CheckpointWarning(UserWarning):
    """The newest checkpoint could not be used, the one before could."""


@dataclass(frozen=True)
class Checkpoint:
    """The saved state of a run."""

    state: State  # of the learner
    about: dict[str, Any]  # facts about the run: position, data, number of records, audit
    instead_of: str | None = None  # why this is the previous checkpoint; None for the newest


def load_checkpoint(path: Path) -> tuple[State, dict[str, Any]]:
    """Return the verified state and what the run said about it; see ``load_state``."""
    check_regular(path, largest=LARGEST_CHECKPOINT)
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


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    position: int = 0  # steps done
    records: int = 0  # records written
    audit: Mapping[str, Any] | None = None  # the auditor's state in the checkpoint


@contextlib.contextmanager
def open_run(
    config: RunConfig, target: RunDirectory, learner: Learner, about: Mapping[str, Any], steps: int
) -> Iterator[Progress]:
    """Begin a run or load its last checkpoint; the directory is locked inside the block.

    A finished run is only read, which needs neither a lock nor the right to write.

    Args:
        config: What to run; a directory that holds another run is refused.
        target: The run directory.
        learner: Gets the state of the last good checkpoint.
        about: Facts about the data, which the checkpoint has to confirm.
        steps: Steps of the whole run.
    """
    target.check()
    if not target.config_path.exists():
        _check_free(target)
    elif not _same_run(config, target):
        raise InputError(f"{target.path} holds another run: choose another directory")
    finished = _finished(target, steps)
    if finished is not None:
        _load(finished, target, learner, about)
        yield Progress(steps, len(target.records()), finished.about.get("audit"))
        return
    with _locked(target):
        try:
            remove_temporaries(target.path)
            begun = target.config_path.exists()
            progress = _continue(target, learner, about) if begun else _begin(config, target, steps)
        except OSError as error:
            raise _cannot_write(target, error) from None
        yield progress


def is_finished(config: RunConfig, target: RunDirectory) -> bool:
    """Whether a directory holds this very run, complete and undamaged. Needs no data."""
    try:
        steps = [evaluation.step for evaluation in target.evaluations() if evaluation.final]
        return (
            _same_run(config, target) and bool(steps) and _finished(target, steps[-1]) is not None
        )
    except (InputError, RecordError):  # reported when the run is opened
        return False


@contextlib.contextmanager
def _locked(target: RunDirectory) -> Iterator[None]:
    """Exclude other processes; the lock of a killed process disappears with it."""
    # Not at once: a report may be looking whether the lock is held (``RunDirectory.running``).
    lock = FileLock(target.lock_path, timeout=0.2, poll_interval=0.02)
    try:
        target.path.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise InUse(f"{target.path} is in use by another process: let it end first") from None
    except OSError as error:
        raise _cannot_write(target, error) from None
    try:
        yield
    finally:
        # While the lock is held: a process that opened the file before finds it unlinked, retries.
        with contextlib.suppress(OSError):
            target.lock_path.unlink(missing_ok=True)
        lock.release()


def _cannot_write(target: RunDirectory, error: OSError) -> CannotWrite | InputError:
    """Return the error of a directory that has no room, or that may not be written to."""
    kind = CannotWrite if error.errno in (errno.ENOSPC, errno.EDQUOT) else InputError
    return kind(f"cannot write to {error.filename or target.path}: {error.strerror}")


def _finished(target: RunDirectory, steps: int) -> Checkpoint | None:
    """Return the last checkpoint of a run that is complete and undamaged, else ``None``."""
    try:
        saved = load_newest(target)
        complete = saved.instead_of is None and saved.about.get("position") == steps
        return saved if complete and target.finished else None
    except (StateMismatch, RecordError):  # reported when the run is opened for writing
        return None


def _begin(config: RunConfig, target: RunDirectory, steps: int) -> Progress:
    # Who watches a run has to know how far it goes before it is there.
    described = json.dumps({**environment(config), "steps": steps}, indent=2)
    fields = config.model_dump(mode="json", exclude_none=True)
    write_atomically(target.environment_path, described.encode() + b"\n")
    write_atomically(target.config_path, tomli_w.dumps(fields).encode())
    return Progress()


def _continue(target: RunDirectory, learner: Learner, about: Mapping[str, Any]) -> Progress:
    if not target.checkpoint_path.exists() and not target.previous_path.exists():
        rewind_records(target.records_path, 0)
        return Progress()
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
        target.previous_path.replace(target.checkpoint_path)  # or the damaged one would become it
    return Progress(position, records, saved.about.get("audit"))


def _load(
    saved: Checkpoint, target: RunDirectory, learner: Learner, about: Mapping[str, Any]
) -> int:
    """Load the learner's state; returns the number of steps done."""
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
    """Refuse a directory that holds files other than those of a run killed at its start."""
    begun = {target.environment_path, target.lock_path, target.log_path}
    try:
        files = list(target.path.iterdir()) if target.path.exists() else []
    except OSError as error:
        raise InputError(f"cannot write to {target.path}: {error.strerror}") from None
    if any(file not in begun and not is_temporary(file) for file in files):
        raise InputError(f"{target.path} is not empty and holds no run: choose another directory")


def _same_run(config: RunConfig, target: RunDirectory) -> bool:
    """Whether a directory records this run; TOML has no None, so open fields do not count."""
    excluded = {"threads", "device", "kernels", "preset"}
    recorded, wanted = (
        each.model_dump(mode="json", exclude=excluded, exclude_none=True)
        for each in (read_run_config(target), config)
    )
    return recorded == wanted
