"""One loop: read a batch once, learn, score when due, checkpoint."""

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
import torch

from deepccg.core import InputError, Learner, StepInfo
from deepccg.evaluation import evaluate
from deepccg.experiment.build import (
    Material,
    build_learner,
    build_material,
    learner_class,
    resolve,
)
from deepccg.experiment.checkpoint import load_checkpoint, save_checkpoint
from deepccg.experiment.config import RunConfig, validated
from deepccg.experiment.environment import environment
from deepccg.records import (
    Evaluation,
    RunDirectory,
    Training,
    append_record,
    rewind_records,
    summary,
    write_atomically,
)
from deepccg.streams import Cursor, Dataset, load_dataset

Progress = Callable[[int, int, StepInfo], None]

CHECKPOINT_SECONDS = 60.0
TRAINING_RECORD_STEPS = 50
_BEGUN = ("environment.json", ".environment.json.", ".config.toml.")  # left if killed at the start


@dataclass(frozen=True)
class RunResult:
    """A finished run.

    Args:
        directory: Where everything was written.
        config: What was run.
        evaluations: The scores, in order of time; metrics are functions of these.
        learner: The trained learner.
        examples_read: How many training examples were read; offline ones count at each read.
    """

    directory: Path
    config: RunConfig
    evaluations: list[Evaluation]
    learner: Learner
    examples_read: int

    @property
    def summary(self) -> dict[str, float | None]:
        """Every metric, as fractions, by name."""
        return summary(self.evaluations)


def run(
    config: RunConfig | None = None,
    directory: str | os.PathLike[str] | None = None,
    *,
    learner: type[Learner] | None = None,
    data: Dataset | None = None,
    data_dir: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> RunResult:
    """Learn a stream online, score it, and write a run directory.

    A directory that holds a part of the same run is continued from its last checkpoint; a
    finished one is read back. A directory of another run is refused.

    Args:
        config: A configuration; or give ``settings``. What it leaves open, its preset fills in.
        directory: Default ``runs/NAME/seed-N``.
        learner: A learner class of your own instead of a method's name.
        data: A data set of your own; its name takes the place of ``dataset``.
        data_dir: Where a named data set lies on this machine; it is not recorded.
        progress: Called after each step with step, total steps and what the step told.
        **settings: Fields of ``RunConfig``, for example ``dataset="digits", memory=100,
            method="er"``; nested ones as dictionaries or with dotted names.
    """
    if config is not None and settings:
        raise InputError("give a configuration or settings, not both")
    if data is not None:
        settings = {**settings, "dataset": data.name}
    if config is not None:
        settings = config.model_dump(mode="json", exclude_none=True)
    config = resolve(settings, learner)
    learner = learner or learner_class(config.method.name)
    target = RunDirectory(Path(directory or Path("runs") / config.name() / f"seed-{config.seed}"))
    data = data or load_dataset(config.dataset, data_dir=data_dir)
    config = config.model_copy(update={"dataset": data.name})  # a name, never a path
    with _threads(config.threads):
        return _run(config, target, learner, build_material(config, data), progress)


def _run(
    config: RunConfig,
    target: RunDirectory,
    learner_type: type[Learner],
    material: Material,
    progress: Progress | None,
) -> RunResult:
    stream = material.stream
    learner = build_learner(config, material.shape, stream.classes, learner_type)
    about = {
        "stream": stream.fingerprint(),
        "shape": list(material.shape),
        "class_names": list(material.class_names),
        "classes": list(stream.classes),
    }
    position = _open_directory(config, target, learner, about)
    cursor = Cursor(stream, position)
    tasks = {task.id: place for place, task in enumerate(stream.tasks)}
    saved_at = time.monotonic()
    for batch in cursor:
        step = cursor.position
        info = learner.learn(batch)
        if progress is not None:
            progress(step, len(stream), info)
        if step % TRAINING_RECORD_STEPS == 0:
            append_record(target.records_path, Training(step, info.loss, dict(info.extra)))
        last = step == len(stream)
        if last or _evaluation_due(config, material, step):
            scores = evaluate(
                learner,
                material.test,
                step=step,
                examples=cursor.reads,
                task=tasks[stream.task_of(step - 1).id],
                final=last,
                of_images=material.of_images,
            )
            append_record(target.records_path, scores)
        if last or time.monotonic() - saved_at > CHECKPOINT_SECONDS:
            save_checkpoint(
                target.checkpoint_path, learner.state_dict(), {**about, "position": step}
            )
            saved_at = time.monotonic()
    return RunResult(target.path, config, target.evaluations(), learner, cursor.reads)


def _evaluation_due(config: RunConfig, material: Material, step: int) -> bool:
    every = config.evaluation.every
    if every == "end":
        return False
    if every == "task":
        stream = material.stream
        return stream.task_of(step - 1).id != stream.task_of(step).id
    return step % every == 0


def _open_directory(
    config: RunConfig, target: RunDirectory, learner: Learner, about: dict[str, Any]
) -> int:
    """Begin, or load what is there; returns the first step still to do."""
    if not target.config_path.exists():
        _begin(config, target)
        return 0
    there = validated(RunConfig, target.config())
    if _decisive(there) != _decisive(config):
        raise InputError(f"{target.path} holds another run: choose another directory")
    if not target.checkpoint_path.exists():
        rewind_records(target.records_path, 0)
        return 0
    state, saved = load_checkpoint(target.checkpoint_path)
    if saved["stream"] != about["stream"]:
        raise InputError(
            f"the data changed since {target.path} was begun: choose another directory"
        )
    learner.load_state_dict(state)
    position = int(saved["position"])
    rewind_records(target.records_path, position)
    return position


def _decisive(config: RunConfig) -> dict[str, Any]:
    """What makes two runs the same. TOML has no None: a field left open is a field left out."""
    excluded = {"threads", "device", "preset"}
    return config.model_dump(mode="json", exclude=excluded, exclude_none=True)


def _begin(config: RunConfig, target: RunDirectory) -> None:
    try:
        target.path.mkdir(parents=True, exist_ok=True)
        if any(not file.name.startswith(_BEGUN) for file in target.path.iterdir()):
            raise InputError(
                f"{target.path} is not empty and holds no run: choose another directory"
            )
        fields = config.model_dump(mode="json", exclude_none=True)
        described = json.dumps(environment(config), indent=2)
        write_atomically(target.environment_path, described.encode() + b"\n")
        write_atomically(target.config_path, tomli_w.dumps(fields).encode())
    except OSError as error:
        raise InputError(f"cannot write to {target.path}: {error.strerror}") from None


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Use ``count`` torch threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
