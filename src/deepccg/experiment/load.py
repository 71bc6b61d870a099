"""Loading a trained learner, or the examples it stored, from a run directory."""

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from deepccg.core import InputError, Learner, StateMismatch, Task, did_you_mean
from deepccg.experiment.build import build_learner
from deepccg.experiment.config import RunConfig
from deepccg.experiment.session import (
    CheckpointWarning,
    load_newest,
    read_run_config,
    recorded_learner,
)
from deepccg.methods import NetworkLearner
from deepccg.records import RunDirectory
from deepccg.streams import read_images

CHUNK = 500  # images classified at once


@dataclass(frozen=True)
class TrainedRun:
    """A learner and what its numbers mean."""

    learner: Learner  # as the run left it
    class_names: tuple[str, ...]  # of each label
    shape: tuple[int, ...]  # of one input, without the batch axis
    config: RunConfig

    def predict_files(
        self, files: Sequence[Path], classes: Sequence[str] | None = None
    ) -> list[dict[str, float]]:
        """Return the probabilities of image files by class name, the most likely class first.

        Args:
            files: The images; they are resized to the inputs of the run.
            classes: Names of the only possible classes; ``None``: all.
        """
        if len(self.shape) != 3:
            raise InputError("the run was trained on vectors: it cannot label image files")
        task = None
        if classes is not None:
            unknown = [name for name in classes if name not in self.class_names]
            if unknown:
                hint, known = did_you_mean(unknown[0], self.class_names), self.class_names
                raise InputError(f"unknown class {unknown[0]!r}{hint}; known: {', '.join(known)}")
            task = Task(id=-1, classes=tuple(map(self.class_names.index, classes)))
        names = [self.class_names[label] for label in self.learner.columns(task)]
        channels, height, width = self.shape
        predictions = []
        for start in range(0, len(files), CHUNK):
            images = read_images(files[start : start + CHUNK], (channels, height, width))
            for row in self.learner.predict_proba(torch.from_numpy(images), task).tolist():
                ranked = sorted(zip(names, row, strict=True), key=lambda pair: -pair[1])
                predictions.append({name: p for name, p in ranked if p > 0})
        return predictions


def load_run(
    directory: str | os.PathLike[str], *, learner: type[Learner] | None = None, device: str = "cpu"
) -> TrainedRun:
    """Load the learner of a run directory, with the names of its classes, on ``device``.

    A run of a learner class of your own is loaded by passing that class: a directory cannot make
    this function import code.
    """
    target = RunDirectory(Path(directory))
    config = read_run_config(target)
    chosen = recorded_learner(config, target, learner)
    config = config.model_copy(update={"device": device})
    saved = load_newest(target)
    if saved.instead_of is not None:
        warnings.warn(saved.instead_of, CheckpointWarning, stacklevel=2)
    about = saved.about
    try:
        shape = tuple(int(size) for size in about["shape"])
        classes = tuple(int(label) for label in about["classes"])
        class_names = tuple(about["class_names"])
    except (KeyError, TypeError, ValueError) as error:
        raise StateMismatch(f"{target.checkpoint_path} is incomplete: {error}") from None
    trained = build_learner(config, shape, classes, chosen)
    trained.load_state_dict(saved.state)
    return TrainedRun(trained, class_names, shape, config)


def load(
    directory: str | os.PathLike[str], *, learner: type[Learner] | None = None, device: str = "cpu"
) -> Learner:
    """Load the trained learner of a run directory; see ``load_run``."""
    return load_run(directory, learner=learner, device=device).learner


@dataclass(frozen=True)
class StoredExamples:
    """The examples in a memory."""

    x: npt.NDArray[np.generic]  # uint8 images [M, C, H, W] or float vectors [M, F]
    y: npt.NDArray[np.int64]  # labels [M]
    classes: tuple[int, ...]  # all labels, in order of arrival
    class_names: tuple[str, ...]  # of each label


def stored_examples(directory: str | os.PathLike[str]) -> StoredExamples:
    """Return the memory of a run's last checkpoint; empty for a method that stores nothing."""
    trained = load_run(directory)
    learner = trained.learner
    if not isinstance(learner, NetworkLearner):
        raise InputError(f"{directory} was learned by a class that does not show its memory")
    labels = np.array(learner.classes, dtype=np.int64)
    return StoredExamples(
        x=learner.memory.x.cpu().numpy(),
        y=labels[learner.memory.y.cpu().numpy()],
        classes=learner.classes,
        class_names=trained.class_names,
    )
