"""One loop: read a batch once, learn, score when due, checkpoint."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from deepccg.core import InputError, Learner, StepInfo
from deepccg.evaluation import PredictionCallback, ShiftMeter, evaluate
from deepccg.experiment.audit.auditor import Auditor
from deepccg.experiment.build import RunData, build_learner, build_run_data
from deepccg.experiment.config import RunConfig
from deepccg.experiment.guards import (
    Interrupted,
    check_state,
    check_step,
    stop_requests,
    torch_threads,
)
from deepccg.experiment.resolve import learner_class, resolve, resolve_config
from deepccg.experiment.result import RunResult
from deepccg.experiment.session import (
    choose_kernels,
    open_run,
    read_run_config,
    recorded_data,
    recorded_learner,
)
from deepccg.experiment.writer import CheckpointSchedule, RunWriter, Stopwatch
from deepccg.records import Evaluation, RecordError, RunDirectory, Training
from deepccg.streams import Cursor, Dataset, load_dataset
from deepccg.tracking import check_tracker, track_run

ProgressCallback = Callable[[int, int, StepInfo], None]

TRAINING_RECORD_STEPS = 50


def run(
    config: RunConfig | None = None,
    directory: str | os.PathLike[str] | None = None,
    *,
    learner: type[Learner] | None = None,
    data: Dataset | None = None,
    data_dir: str | Path | None = None,
    progress: ProgressCallback | None = None,
    checkpoint_every: int | str | None = None,
    track: str | None = None,
    **settings: Any,
) -> RunResult:
    """Learn a stream online, score it, and write a run directory.

    A directory that holds a part of the same run is continued from its last checkpoint; a
    finished one is read back. A directory of another run is refused. Ctrl-C and SIGTERM end the
    run after the step in progress and a checkpoint, with ``Interrupted``, a ``KeyboardInterrupt``.

    Args:
        config: A configuration; or give ``settings``. What it leaves open, its preset fills in.
        directory: Default ``runs/NAME/seed-N``.
        learner: A learner class of your own instead of a method's name.
        data: A data set of your own; its name takes the place of ``dataset``.
        data_dir: Where a named data set lies on this machine; it is not recorded.
        progress: Called after each step with step, total steps and the step's ``StepInfo``. If it
            has a method ``begin``, that is called before the first one: with the step that the run
            continues from, 0 for a new one, and the total.
        checkpoint_every: Steps, or seconds such as ``"30s"``; default 60 seconds.
        track: An experiment tracker that also gets the records: ``"mlflow"``, ``"tensorboard"`` or
            ``"wandb"``.
        **settings: Fields of ``RunConfig``, for example ``dataset="digits", memory=100,
            method="er"``; nested ones as dictionaries or with dotted names.
    """
    if config is not None and settings:
        raise InputError("give a configuration or settings, not both")
    if config is not None:
        config = resolve_config(config, learner)
    else:
        named = {} if data is None else {"dataset": data.name}
        config = resolve({**settings, **named}, learner)
    schedule = CheckpointSchedule(checkpoint_every)
    if track is not None:
        check_tracker(track)
    learner = learner or learner_class(config.method.name)
    target = RunDirectory(Path(directory or Path("runs") / config.name() / f"seed-{config.seed}"))
    data = data or load_dataset(config.dataset, data_dir=data_dir)
    online = partial(learn_online, schedule=schedule, progress=progress)
    return carry_out(config, target, learner, data, online, track)


def resume(
    directory: str | os.PathLike[str],
    *,
    learner: type[Learner] | None = None,
    data: Dataset | None = None,
    data_dir: str | Path | None = None,
    progress: ProgressCallback | None = None,
    checkpoint_every: int | str | None = None,
    track: str | None = None,
) -> RunResult:
    """Continue the run of a directory to its end, or read it back if it is finished.

    A ``learner`` or ``data`` of your own has to be passed again; ``data_dir`` is where a named data
    set, or the folder that was learned, lies on this machine. The others are as in ``run``.
    """
    target = RunDirectory(Path(directory))
    config = read_run_config(target)
    learner = recorded_learner(config, target, learner)
    schedule = CheckpointSchedule(checkpoint_every)
    data = data or recorded_data(config, target, data_dir)
    online = partial(learn_online, schedule=schedule, progress=progress)
    return carry_out(config, target, learner, data, online, track)


@dataclass
class RunInProgress:
    """What a run is made of while it learns."""

    config: RunConfig
    target: RunDirectory
    data: RunData
    learner: Learner
    cursor: Cursor
    writer: RunWriter
    auditor: Auditor

    def save(self, watch: Stopwatch) -> None:
        """Save everything as it is after the cursor's step."""
        watch.save(self.cursor.position)
        self.writer.checkpoint(self.learner, self.cursor.position, self.auditor.state())


def carry_out(
    config: RunConfig,
    target: RunDirectory,
    learner_type: type[Learner],
    dataset: Dataset,
    learn: Callable[[RunInProgress], None],
    track: str | None = None,
) -> RunResult:
    """Build everything, let ``learn`` go through the stream, and read back what was written."""
    config = config.model_copy(update={"dataset": dataset.name})  # a name, never a path
    with torch_threads(config.threads):
        data = build_run_data(config, dataset)
        config = config.model_copy(update={"kernels": choose_kernels(config, target, data.shape)})
        stream = data.stream
        auditor = Auditor(config, data)
        learner = build_learner(config, data.shape, stream.classes, learner_type, auditor.attach)
        about = {
            "stream": stream.fingerprint(),
            "shape": list(data.shape),
            "class_names": list(dataset.class_names),
            "classes": list(stream.classes),
        }
        with (
            open_run(config, target, learner, about, len(stream)) as done,
            track_run(track, target, config.model_dump(mode="json")) as tracker,
        ):
            cursor = Cursor(stream, done.position)
            writer = RunWriter(target, about, done.position, done.records, tracker.record)
            auditor.begin(done.position, done.audit, partial(writer.file, target.audit_path))
            going = RunInProgress(config, target, data, learner, cursor, writer, auditor)
            learn(going)
    if not target.finished:
        raise RecordError(f"{target.records_path} lacks the final score: the file was changed")
    return RunResult(
        target.path, config, target.evaluations(), learner, going.cursor.reads, auditor.audit()
    )


def learn_online(
    going: RunInProgress,
    schedule: CheckpointSchedule,
    progress: ProgressCallback | None = None,
    until: Callable[[], bool] = lambda: False,
) -> None:
    """The loop: step after step, to the end or ``until`` something holds; then all is saved."""
    config, target, data, learner = going.config, going.target, going.data, going.learner
    cursor, writer, auditor = going.cursor, going.writer, going.auditor
    steps = len(data.stream)
    shift = _ShiftRecorder(config, data, writer, auditor, learner, cursor.position)
    watch = Stopwatch(target.timing_path, cursor.position, writer.file)
    if begin := getattr(progress, "begin", None):
        begin(cursor.position, steps)
    with stop_requests() as stop, writer.explain_divergence(config, cursor):
        for batch in cursor:
            step = cursor.position
            auditor.on_batch(step)
            with watch.timing("learn"):
                info = learner.learn(batch)
            check_step(step, info)
            if progress is not None:
                progress(step, steps, info)
            if step % TRAINING_RECORD_STEPS == 0:
                writer.record(Training(step, info.loss, dict(info.extra)))
            with watch.timing("evaluate"):
                shift.after(step, learner)
            if step == steps or _evaluation_due(config, data, step):
                check_state(step, learner.state_dict())
                with auditor.evaluating(learner) as on_predictions, watch.timing("evaluate"):
                    scores = _score(data, learner, cursor, on_predictions)
                writer.record(scores)
            if step == steps:
                auditor.close()
            ending = stop.signal is not None or until()
            if step == steps or ending or schedule.due(step):
                going.save(watch)
                schedule.saved()
            if ending:
                break
    if stop.signal is not None:
        raise Interrupted(target.path, cursor.position, steps, stop.signal)


def _score(
    data: RunData, learner: Learner, cursor: Cursor, on_predictions: PredictionCallback
) -> Evaluation:
    stream, step = data.stream, cursor.position
    return evaluate(
        learner,
        data.test,
        step=step,
        examples=cursor.reads,
        task=stream.tasks.index(stream.task_of(step - 1)),
        final=step == len(stream),
        of_images=data.of_images,
        on_predictions=on_predictions,
    )


def _evaluation_due(config: RunConfig, data: RunData, step: int) -> bool:
    every = config.evaluation.every
    if every == "end":
        return False
    if every == "task":
        stream = data.stream
        return stream.task_of(step - 1).id != stream.task_of(step).id
    return step % every == 0


class _ShiftRecorder:
    """After the first task, records what each batch does to that task's test images.

    The learner only predicts, as in an evaluation: what it learns does not depend on this.
    ``position`` is how many steps it has done: not 0 for a run that is continued.
    """

    def __init__(
        self,
        config: RunConfig,
        data: RunData,
        writer: RunWriter,
        auditor: Auditor,
        learner: Learner,
        position: int,
    ) -> None:
        self._test, self._mode, self._stream = data.shift_images, config.scenario, data.stream
        self._writer, self._auditor = writer, auditor
        first, steps = data.stream.tasks[0], range(len(data.stream))
        others = (step for step in steps if data.stream.task_of(step) != first)
        self._begin = next(others, len(steps))  # the first batch of another task
        self._meter: ShiftMeter | None = None
        if self._test is not None and self._begin <= position < len(steps):
            with auditor.observing(counted=False):  # counted before the run was interrupted
                self._meter = ShiftMeter(self._test, self._mode, learner)

    def after(self, step: int, learner: Learner) -> None:
        """Record what ``step`` did; the last step of the first task only sets the reference."""
        if self._test is None or step < self._begin:
            return
        with self._auditor.observing():
            if self._meter is None:
                self._meter = ShiftMeter(self._test, self._mode, learner)
                return
            task = self._stream.tasks.index(self._stream.task_of(step - 1))
            shift = self._meter.measure(learner, step=step, task=task)
        self._writer.record(shift)
