"""Send the records of a run to an experiment tracker while they are written."""

import contextlib
import importlib.util
import json
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from deepccg.core import InputError
from deepccg.records import (
    Evaluation,
    Record,
    RecordError,
    RunDirectory,
    Training,
    flatten,
    read_json_object,
    summary,
    write_atomically,
)

TRACKERS = {"mlflow": "tracking", "tensorboard": "tracking", "wandb": "wandb"}  # and their extras
SEND_SECONDS = 2.0  # between two deliveries; a method may write a record for every batch


@dataclass(frozen=True)
class RunInfo:
    """A run, as a tracker knows it."""

    identity: str  # unique, and the same whenever the run is continued
    title: str
    directory: Path
    parameters: Mapping[str, Any]  # the configuration, flat, without fields that are None


class MetricPoint(NamedTuple):
    """Metrics by name, after ``step`` batches."""

    step: int
    values: Mapping[str, float]


class TrackerBackend(Protocol):
    """One run in a tracker. Points that the tracker already has are not added again."""

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What is raised when the tracker cannot be reached."""

    def send(self, points: Sequence[MetricPoint]) -> None:
        """Store these points."""

    def close(self, *, finished: bool) -> None:
        """Mark the run as finished or as interrupted."""


@contextlib.contextmanager
def track_run(
    name: str | None, target: RunDirectory, config: Mapping[str, Any]
) -> Iterator["Tracker"]:
    """Send a run's records to a tracker, including those written before.

    ``records.jsonl`` decides: whether the tracker has received more than the checkpoint has, or
    less, in the end it has each record once, however often the run was interrupted.

    Args:
        name: One of ``TRACKERS``; ``None`` for no tracker.
        target: The run directory, rolled back to its checkpoint.
        config: The run's configuration.
    """
    if name is None:
        yield Tracker(None)
        return
    title = "/".join(target.path.absolute().parts[-2:])
    parameters = {name: value for name, value in flatten(config).items() if value is not None}
    info = RunInfo(_identity(target), title, target.path, parameters)
    tracker = Tracker(_open_backend(name, info))
    for record in target.records():
        tracker.record(record)
    finished = False
    try:
        yield tracker
        finished = True
    finally:
        tracker.close(finished=finished)


class Tracker:
    """Sends records to a backend in batches, or nowhere; one that fails costs only a warning."""

    def __init__(self, backend: TrackerBackend | None) -> None:
        self._backend = backend
        self._evaluations: list[Evaluation] = []
        self._unsent: list[MetricPoint] = []
        self._sent_at = time.monotonic()
        self._failure: str | None = None

    def record(self, record: Record) -> None:
        """Send a record, at once or with later ones."""
        if self._backend is None:
            return
        if isinstance(record, Evaluation):
            self._evaluations.append(record)
        self._unsent.append(metric_point(record, self._evaluations))
        if self._failure is None and time.monotonic() - self._sent_at > SEND_SECONDS:
            self._send(self._backend)

    def close(self, *, finished: bool) -> None:
        """Send the rest, and once more what could not be sent before."""
        if self._backend is None:
            return
        self._send(self._backend)
        with contextlib.suppress(*self._backend.errors):
            self._backend.close(finished=finished)
        if self._unsent:
            warnings.warn(
                f"tracking: {len(self._unsent)} records were not delivered ({self._failure}); "
                f"the same command again delivers them",
                stacklevel=2,
            )

    def _send(self, backend: TrackerBackend) -> None:
        try:
            backend.send(self._unsent)
        except backend.errors as error:
            self._failure = " ".join(f"{error}".split())
        else:
            self._unsent, self._failure = [], None
        self._sent_at = time.monotonic()


def check_tracker(name: str) -> None:
    """Reject a name that is no tracker's, or one that is not installed."""
    if name not in TRACKERS:
        raise InputError(f"track should be {' or '.join(TRACKERS)}; got {name!r}")
    if importlib.util.find_spec(name) is None:
        command = f"pip install 'deepccg[{TRACKERS[name]}]'"
        raise InputError(f"tracking with {name} needs a package: {command}")


def prepare_tracker(name: str) -> None:
    """Create what all runs share, before several of them try to at once."""
    check_tracker(name)
    if name == "mlflow":
        from deepccg.tracking.mlflow_backend import open_experiment

        open_experiment()


def metric_point(record: Record, evaluations: Sequence[Evaluation]) -> MetricPoint:
    """Return the metrics of a record, given all evaluations so far, itself included.

    A training record gives ``train/loss`` and the method's diagnostics; an evaluation gives every
    metric of ``deepccg.records.summary`` over the evaluations so far (``eval/...``) and each task's
    accuracy (``task_3/...``); any other record its numbers as they are.
    """
    values: dict[str, float | None]
    if isinstance(record, Training):
        values = {"train/loss": record.loss}
        values |= {f"train/{name}": value for name, value in record.extra.items()}
    elif isinstance(record, Evaluation):
        values = {f"eval/{name}": value for name, value in summary(evaluations).items()}
        for score in record.tasks:
            values[f"task_{score.task}/task_accuracy"] = score.task_correct / score.images
            if score.class_correct is not None:
                values[f"task_{score.task}/class_accuracy"] = score.class_correct / score.images
    else:
        numbers = {k: v for k, v in record.to_json().items() if isinstance(v, int | float)}
        values = {f"{record.type}/{k}": v for k, v in numbers.items() if k != "step"}
    return MetricPoint(record.step, {k: float(v) for k, v in values.items() if v is not None})


def _open_backend(name: str, info: RunInfo) -> TrackerBackend:
    """Create a run in a tracker, or open the one that was interrupted."""
    check_tracker(name)
    if name == "mlflow":
        from deepccg.tracking.mlflow_backend import MlflowBackend

        return MlflowBackend(info)
    if name == "tensorboard":
        from deepccg.tracking.tensorboard_backend import TensorboardBackend

        return TensorboardBackend(info)
    from deepccg.tracking.wandb_backend import WandbBackend

    return WandbBackend(info)


def _identity(target: RunDirectory) -> str:
    """Return the run's id for trackers: random, and on disk before any tracker gets it."""
    path = target.tracking_path
    try:
        if not path.exists():
            write_atomically(path, json.dumps({"id": uuid.uuid4().hex}).encode() + b"\n")
        return uuid.UUID(hex=(read_json_object(path) or {})["id"]).hex
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        raise RecordError(f"{path} holds no id: remove it to be tracked as a new run") from None
