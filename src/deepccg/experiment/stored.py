"""What a finished run's memory holds."""

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from deepccg.core import InputError
from deepccg.experiment.load import load_run
from deepccg.methods import NetworkLearner


@dataclass(frozen=True)
class StoredExamples:
    """The examples in a memory.

    Args:
        x: ``[M, ...]``: uint8 images ``[M, C, H, W]`` or float vectors ``[M, F]``.
        y: ``[M]`` labels.
        classes: All labels, in order of arrival.
        class_names: The name of each label.
    """

    x: npt.NDArray[np.generic]
    y: npt.NDArray[np.int64]
    classes: tuple[int, ...]
    class_names: tuple[str, ...]


def stored_examples(directory: str | os.PathLike[str]) -> StoredExamples:
    """The memory in a run's last checkpoint; without examples for a method that stores none."""
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
