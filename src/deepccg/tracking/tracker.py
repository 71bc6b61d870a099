"""Telling a tracker what a run writes down, while it does."""

import contextlib
import importlib.util
import json
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from deepccg.core import InputError
from deepccg.records import (
    Evaluation,
    Record,
    RecordError,
    RunDirectory,
    Training,
    flatten,
    summary,
    write_atomically,
)


@dataclass(frozen=True)
class Described:
    """A run, as a tracker sees it.

    Args:
        identity: The same whenever the run is continued, and no other run's.
        title: What people call it.
        directory: Where it is on this machine.
        parameters: Its configuration, flat.
    """

    identity: str
    title: str
    directory: Path
    parameters: Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """Some numbers at one step.

    Args:
        step: Batches learned.
        values: The numbers, by name.
    """

    step: int
    values: Mapping[str, float]


class Store(Protocol):
    """One run in a tracker. Points that it has from before it does not take again."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What is raised when the tracker cannot be reached."""

    def send(self, points: Sequence[Point]) -> None:
        """Keep these points."""

    def close(self, *, finished: bool) -> None:
        """The run is finished, or was interrupted."""


class Points:
    """Makes points of records, which come in the order they were written.

    A training record gives ``train/loss`` and whatever else the method told; an evaluation gives
    every metric of ``deepccg.records.summary`` over the evaluations so far (``eval/...``) and each
    task's accuracy (``task_3/...``).
    """

    def __init__(self) -> None:
        self._evaluations: list[Evaluation] = []

    def of(self, record: Record) -> Point:
        """The numbers of a record; those of a kind that this does not know as they stand in it."""
        if isinstance(record, Training):
            values = {"loss": record.loss, **record.extra}
            return Point(record.step, {f"train/{name}": float(v) for name, v in values.items()})
        if isinstance(record, Evaluation):
            self._evaluations.append(record)
            return Point(record.step, self._scores(record))
        numbers = {
            f"{record.type}/{name}": float(value)
            for name, value in record.to_json().items()
            if name != "step" and isinstance(value, int | float)
        }
        return Point(record.step, numbers)

    def _scores(self, last: Evaluation) -> dict[str, float]:
        so_far = summary(self._evaluations)
        scores = {f"eval/{name}": value for name, value in so_far.items() if value is not None}
        for score in last.tasks:
            of_task = f"task_{score.task}"
            scores[f"{of_task}/task_accuracy"] = score.task_correct / score.images
            if score.class_correct is not None:
                scores[f"{of_task}/class_accuracy"] = score.class_correct / score.images
        return scores


def parameters(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as a flat table, without what it leaves open.

    >>> parameters({"seed": 0, "memory": None, "method": {"name": "er", "lr": 0.1}})
    {'seed': 0, 'method.name': 'er', 'method.lr': 0.1}
    """
    return {name: value for name, value in flatten(config).items() if value is not None}


TRACKERS = {"mlflow": "mlflow", "tensorboard": "tensorboard", "wandb": "wandb"}  # and their modules


def check_tracker(name: str) -> None:
    """Refuse, in one line, a name that is no tracker's or one that is not installed."""
    if name not in TRACKERS:
        raise InputError(f"track should be {' or '.join(TRACKERS)}; got {name!r}")
    if importlib.util.find_spec(TRACKERS[name]) is None:
        extra = "wandb" if name == "wandb" else "tracking"
        raise InputError(f"tracking with {name} needs a package: pip install 'deepccg[{extra}]'")


def prepare_tracker(name: str) -> None:
    """Make what all runs share, before several of them want it at once."""
    check_tracker(name)
    if name == "mlflow":
        from deepccg.tracking.mlflow_backend import experiment

        experiment()


def open_store(name: str, described: Described) -> Store:
    """A run in a tracker: a new one, or the one that it was before it was interrupted."""
    check_tracker(name)
    if name == "mlflow":
        from deepccg.tracking.mlflow_backend import MlflowStore

        return MlflowStore(described)
    if name == "tensorboard":
        from deepccg.tracking.tensorboard_backend import TensorboardStore

        return TensorboardStore(described)
    from deepccg.tracking.wandb_backend import WandbStore

    return WandbStore(described)


SEND_SECONDS = 2.0  # between two deliveries; a method may write a record for every batch


class Tracked:
    """Passes on records. A store that fails costs a warning, never the run.

    Args:
        store: Where they go; ``None`` for nowhere.
    """

    def __init__(self, store: Store | None) -> None:
        self._store = store
        self._points = Points()
        self._waiting: list[Point] = []
        self._sent_at = time.monotonic()
        self._failed: str | None = None

    def record(self, record: Record) -> None:
        """A record was written."""
        if self._store is None:
            return
        self._waiting.append(self._points.of(record))
        if self._failed is None and time.monotonic() - self._sent_at > SEND_SECONDS:
            self._send(self._store)

    def close(self, *, finished: bool) -> None:
        """Deliver the rest; what failed before is tried once more."""
        if self._store is None:
            return
        self._send(self._store)
        with contextlib.suppress(*self._store.errors):
            self._store.close(finished=finished)
        if self._waiting:
            warnings.warn(
                f"tracking: {len(self._waiting)} records were not delivered ({self._failed}); "
                f"the same command again delivers them",
                stacklevel=2,
            )

    def _send(self, store: Store) -> None:
        try:
            store.send(self._waiting)
        except store.errors as error:
            self._failed = " ".join(f"{error}".split())
        else:
            self._waiting, self._failed = [], None
        self._sent_at = time.monotonic()


@contextlib.contextmanager
def tracked(name: str | None, target: RunDirectory, config: Mapping[str, Any]) -> Iterator[Tracked]:
    """Have a run's records told to a tracker, those that it has by now included.

    The records are the truth: a tracker that was told more than the checkpoint knows, or less, has
    each of them once in the end, however often the run is interrupted.

    Args:
        name: One of ``TRACKERS``; ``None`` for no tracker.
        target: The run directory, opened and taken back to its checkpoint.
        config: What is run.
    """
    if name is None:
        yield Tracked(None)
        return
    title = "/".join(target.path.absolute().parts[-2:])
    described = Described(_identity(target), title, target.path, parameters(config))
    tracked = Tracked(open_store(name, described))
    for record in target.records():
        tracked.record(record)
    finished = False
    try:
        yield tracked
        finished = True
    finally:
        tracked.close(finished=finished)


def _identity(target: RunDirectory) -> str:
    """What the run is called by trackers: random, and written down before any of them hears it."""
    path = target.tracking_path
    try:
        if not path.exists():
            content = {"id": uuid.uuid4().hex}
            write_atomically(path, json.dumps(content).encode() + b"\n")
        identity = json.loads(path.read_text(encoding="utf-8"))["id"]
        return uuid.UUID(hex=identity).hex
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise RecordError(f"{path} holds no id: remove it to be tracked anew") from None
