"""A shard: consecutive steps of a run that another process learns, for statistics that add up."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepccg.core import CannotWrite, InputError, StateMismatch, validated
from deepccg.experiment.audit.measure import PassCounter
from deepccg.experiment.build import build_learner, build_run_stream
from deepccg.experiment.config import RunConfig
from deepccg.experiment.guards import (
    Interrupted,
    check_state,
    check_step,
    stop_requests,
    torch_threads,
)
from deepccg.experiment.resolve import learner_class
from deepccg.experiment.run import ProgressCallback, RunInProgress
from deepccg.experiment.session import load_newest
from deepccg.experiment.writer import CheckpointSchedule
from deepccg.learners.state import tensors_of
from deepccg.learners.state_file import UnusableStateFile, load_state, save_state
from deepccg.methods import CCG, METHODS
from deepccg.records import RunDirectory
from deepccg.streams import Cursor, Dataset, Stream

NOT_SHARED = "--out has to be on a disk that all machines share"


def mergeable_learner(config: RunConfig) -> type[CCG]:
    """Return the class of a method whose statistics add up; refuse any other, in one line."""
    found = learner_class(config.method.name)
    if not issubclass(found, CCG):
        able = ", ".join(name for name, each in METHODS.items() if issubclass(each, CCG))
        raise InputError(
            f"{config.method.name} cannot be fitted in shards, it learns in order: "
            f"choose one of {able}, or use `deepccg run`"
        )
    if validated(found.Config, config.method.fields, "method").half_lives:
        raise InputError(
            "statistics that forget cannot be fitted in shards: set method.half_lives to []"
        )
    return found


@dataclass(frozen=True)
class Shard:
    """The steps of a run from ``first`` up to, not including, ``stop``.

    Its files are in a directory below the run's: what it has learned so far, and a log. It begins
    with the features in the run's last checkpoint and without statistics.
    """

    run: RunDirectory
    first: int
    stop: int

    @property
    def directory(self) -> RunDirectory:
        """Where its files are."""
        return RunDirectory(shards_path(self.run) / f"{self.first}-{self.stop}")

    def learn(
        self,
        config: RunConfig,
        dataset: Dataset,
        progress: ProgressCallback | None = None,
        checkpoint_every: int | str | None = None,
    ) -> None:
        """Learn the steps, from the shard's last checkpoint on; options as in ``run``."""
        schedule = CheckpointSchedule(checkpoint_every)
        with torch_threads(config.threads):
            stream, _ = build_run_stream(config, dataset)
            part = _Part(self, config, stream, tuple(dataset.train.x.shape[1:]))
            with stop_requests() as stop:
                while part.cursor.position < self.stop:
                    position = part.step(progress)
                    stopping = stop.signal is not None
                    if position == self.stop or stopping or schedule.due(position):
                        part.save()
                        schedule.saved()
                    if stopping:
                        break
        if stop.signal is not None:
            raise Interrupted(self.run.path, part.cursor.position, self.stop, stop.signal)

    def load(self, going: RunInProgress) -> tuple[CCG, Mapping[str, Any]]:
        """Return the learner of these steps alone, and what the shard noted about itself."""
        path, data, config = self.directory.checkpoint_path, going.data, going.config
        try:
            state, about = load_state(path)
        except FileNotFoundError:
            raise InputError(f"a shard was learned, but {path} is not here: {NOT_SHARED}") from None
        if (about["stream"], about["position"]) != (going.writer.about["stream"], self.stop):
            raise StateMismatch(f"{path} is not of these steps: remove {shards_path(self.run)}")
        kind = mergeable_learner(config)
        learner = build_learner(config, data.shape, data.stream.classes, kind)
        learner.load_state_dict(state)
        return learner, about


def shards_path(run: RunDirectory) -> Path:
    """Return the directory of a run's shards, which exists until they are merged."""
    return run.path / "shards"


class _Part:
    """A shard while it learns."""

    def __init__(
        self, shard: Shard, config: RunConfig, stream: Stream, shape: tuple[int, ...]
    ) -> None:
        self._shard, self._stream, self._counter = shard, stream.fingerprint(), PassCounter()
        self.seconds = 0.0
        self.learner = build_learner(
            config,
            shape,
            stream.classes,
            mergeable_learner(config),
            lambda network: self._counter.attach(network, int(getattr(network, "dim", 0))),
        )
        self.cursor = Cursor(stream, self._begin())

    def _begin(self) -> int:
        """Load the shard's last checkpoint, or else the run's features; returns the next step."""
        try:
            state, about = load_state(self._shard.directory.checkpoint_path)
        except (FileNotFoundError, UnusableStateFile):
            if not self._shard.run.config_path.exists():
                raise InputError(f"{self._shard.run.path} is not here: {NOT_SHARED}") from None
            saved = load_newest(self._shard.run)
            self._check_stream(saved.about)
            self.learner.network.load_state_dict(tensors_of("network", saved.state))
            return self._shard.first
        self._check_stream(about)
        self.learner.load_state_dict(state)
        self._counter.load(about["passes"])
        self.seconds = about["seconds"]
        return int(about["position"])

    def _check_stream(self, about: Mapping[str, Any]) -> None:
        if about.get("stream") != self._stream:
            raise InputError(
                f"the data here is not that of {self._shard.run.path}: "
                f"every machine needs the same files"
            )

    def step(self, progress: ProgressCallback | None) -> int:
        """Learn the next batch; returns the number of the step."""
        batch, began = next(self.cursor), time.perf_counter()
        info = self.learner.learn(batch)
        self.seconds += time.perf_counter() - began
        position, shard = self.cursor.position, self._shard
        check_step(position, info)
        if progress is not None:
            progress(position - shard.first, shard.stop - shard.first, info)
        return position

    def save(self) -> None:
        """Replace the shard's checkpoint."""
        path, state = self._shard.directory.checkpoint_path, self.learner.state_dict()
        check_state(self.cursor.position, state)
        about = {
            "stream": self._stream,
            "position": self.cursor.position,
            "passes": self._counter.counts,
            "seconds": round(self.seconds, 6),
        }
        try:
            save_state(path, state, about)
        except OSError as error:
            raise CannotWrite(f"cannot write {path}: {error.strerror or error}") from None
