"""Fit one learner over the shards of a stream, in parallel: statistics add up.

The first batches, until the features are fitted, and the last one are learned here, in the loop of
every run; everything between in shards, by an engine. So a fit is a run like any other, and equals
the one of a single process but for rounding.
"""

import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from signal import Signals
from typing import Any, cast

from rich.console import Console

from deepccg.core import DeepCCGError, InputError
from deepccg.experiment import Interrupted, RunConfig, RunResult, overlay, resolve
from deepccg.experiment.resolve import resolve_config
from deepccg.experiment.run import RunInProgress, carry_out, learn_online
from deepccg.experiment.shard import Shard, mergeable_learner, shards_path
from deepccg.experiment.writer import CheckpointSchedule, Stopwatch
from deepccg.methods import CCG
from deepccg.records import RunDirectory
from deepccg.streams import Cursor, load_dataset
from deepccg.sweep.engine import Engine
from deepccg.sweep.job import Job, JobSpec, SweepStopped
from deepccg.sweep.progress import SweepProgress
from deepccg.sweep.scheduler import SweepLoop, build_engine, check_options, processors


class ShardFailed(DeepCCGError, RuntimeError):
    """A shard could not be learned. The others are kept, and the same call continues."""


def fit(
    config: RunConfig | None = None,
    *,
    out: str | Path = "runs",
    data_dir: str | Path | None = None,
    shards: int | None = None,
    engine: str = "local",
    address: str | None = None,
    retries: int = 1,
    checkpoint_every: int | str | None = None,
    progress: bool = True,
    **settings: Any,
) -> RunResult:
    """Learn a stream in parallel with ``ccg`` or a control of it, score it, and write a run.

    The run directory, ``NAME/seed-N`` below ``out``, is that of ``run`` with ``evaluation.every``
    ``"end"``: a fit is scored once. One that was interrupted is continued, a finished one read
    back, by either of the two.

    Args:
        config: A configuration; or give ``settings``, as in ``run``.
        out: Where run directories go. Machines of a cluster have to share it.
        data_dir: The directory of named data sets.
        shards: Parts of the stream; default one for each processor of this machine.
        engine: ``local``, as many processes as there are processors, or ``ray``.
        address: Of the Ray cluster; default the one that Ray finds.
        retries: How often a shard that failed is tried again, from its last checkpoint.
        checkpoint_every: Of a shard, as in ``run``.
        progress: Show bars on a terminal, log lines elsewhere, on standard error.
        **settings: Fields of ``RunConfig``; the method is ``ccg`` if none is given.
    """
    if config is not None and settings:
        raise InputError("give a configuration or settings, not both")
    config = resolve(overlay({"method": "ccg"}, settings)) if config is None else config
    job = _job(resolve_config(config))
    shards = processors() if shards is None else shards
    if shards < 1:
        raise InputError(f"there should be at least 1 shard; got {shards}")
    check_options(engine, None, retries)
    CheckpointSchedule(checkpoint_every)  # raises if it is invalid
    kind = mergeable_learner(job.config)
    out, data_dir = Path(out), None if data_dir is None else Path(data_dir)
    dataset = load_dataset(job.config.dataset, data_dir=data_dir)
    spec = JobSpec.from_job(job, out, data_dir, checkpoint_every=checkpoint_every)
    console = Console(stderr=True, quiet=not progress)
    with build_engine(engine, min(processors(), shards), address, None) as running:
        learn = ShardedLearning(job, spec, shards, running, retries, out, console).learn
        return carry_out(job.config, RunDirectory(out / job.name), kind, dataset, learn)


def _job(config: RunConfig) -> Job:
    """Return the run to do: scored once, at the end."""
    if config.evaluation.shift_images is not None:
        raise InputError("evaluation.shift_images needs every step in order: use `deepccg run`")
    scoring = config.evaluation.model_copy(update={"every": "end"})
    return Job(config.model_copy(update={"evaluation": scoring}), config.seed)


@dataclass(frozen=True)
class ShardedLearning:
    """Learns a run's stream: its first and last steps here, the others by an engine."""

    job: Job
    spec: JobSpec  # of the whole run
    shards: int
    engine: Engine
    retries: int
    out: Path
    console: Console

    def learn(self, going: RunInProgress) -> None:
        """Learn everything that is left, and score it."""
        learner, last = cast(CCG, going.learner), len(going.data.stream) - 1
        schedule = CheckpointSchedule(self.spec.checkpoint_every)
        if not learner.ready:
            learn_online(going, schedule, until=lambda: learner.ready)
        if going.cursor.position < last:
            watch = Stopwatch(going.target.timing_path, going.cursor.position, going.writer.file)
            if not going.cursor.position:  # features that need no fitting
                going.save(watch)
            shards = split(going.target, going.cursor.position, last, self.shards)
            self._learn_elsewhere(going, shards)
            self._merge(going, shards, watch)
        if going.cursor.position == last:
            shutil.rmtree(shards_path(going.target), ignore_errors=True)
        learn_online(going, schedule)

    def _learn_elsewhere(self, going: RunInProgress, shards: Sequence[Shard]) -> None:
        """Have every shard learned, or raise."""
        specs = {spec.name: spec for spec in (self._spec_of(shard, going) for shard in shards)}
        jobs = dict.fromkeys(specs, self.job)
        shown = SweepProgress(len(specs), 0, self.console, unit="shard")
        loop = SweepLoop(jobs, specs, self.engine, shown, self.retries, self.out)
        try:
            with shown.bars:
                outcomes = loop.run([])
        except SweepStopped as stop:
            steps, number = len(going.data.stream), Signals(stop.signal)
            raise Interrupted(going.target.path, going.cursor.position, steps, number) from None
        failed = [(name, each.error) for name, each in outcomes.items() if each.status == "failed"]
        if failed:
            raise ShardFailed(
                f"{len(failed)} of {len(specs)} shards failed, {failed[0][0]} because: "
                f"{failed[0][1]}; the others are kept, and the same command continues"
            )

    def _spec_of(self, shard: Shard, going: RunInProgress) -> JobSpec:
        directory = shard.directory.path
        return replace(
            self.spec,
            name=str(directory.relative_to(self.out)),
            config=going.config.model_dump(mode="json"),
            directory=str(directory.absolute()),
            shard=(shard.first, shard.stop),
        )

    def _merge(self, going: RunInProgress, shards: Sequence[Shard], watch: Stopwatch) -> None:
        """Add what the shards have learned, as if it had been learned here."""

        def learners() -> Iterator[CCG]:
            yield cast(CCG, going.learner)
            for shard in shards:
                learner, about = shard.load(going)
                going.auditor.on_shard(range(shard.first, shard.stop), about["passes"])
                watch.add("learn", about["seconds"])
                yield learner

        merge_in_tree(learners())
        going.cursor = Cursor(going.data.stream, shards[-1].stop)
        going.save(watch)


def split(run: RunDirectory, first: int, stop: int, shards: int) -> list[Shard]:
    """Cut steps into shards of nearly the same length, none of them empty."""
    steps = stop - first
    shards = min(shards, steps)
    cuts = [first + steps * i // shards for i in range(shards + 1)]
    return [Shard(run, *ends) for ends in pairwise(cuts)]


def merge_in_tree(learners: Iterable[CCG]) -> None:
    """Merge all learners into the first, neighbours first.

    Rounding grows with the tree's depth, and only so many learners are held at a time.
    """
    waiting: list[tuple[int, CCG]] = []  # and from how many learners each is merged
    for learner in learners:
        waiting.append((1, learner))
        while len(waiting) > 1 and waiting[-1][0] == waiting[-2][0]:
            _merge_last_two(waiting)
    while len(waiting) > 1:
        _merge_last_two(waiting)


def _merge_last_two(waiting: list[tuple[int, CCG]]) -> None:
    (size, learner), (further, other) = waiting.pop(-2), waiting.pop()
    learner.merge(other)
    waiting.append((size + further, learner))
