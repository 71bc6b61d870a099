"""Telling a tracker what a run writes down, while it does."""

import contextlib
import json
import time
import uuid
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from deepccg.core import InputError
from deepccg.records import Record, RecordError, RunDirectory, write_atomically
from deepccg.tracking.points import Point, Points, parameters
from deepccg.tracking.store import Described, Store
from deepccg.tracking.stores import open_store

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
