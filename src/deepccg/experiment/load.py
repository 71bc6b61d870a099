"""Getting a trained learner back."""

import os
import warnings
from dataclasses import dataclass
from pathlib import Path

from deepccg.core import Learner, StateMismatch
from deepccg.experiment.build import build_learner
from deepccg.experiment.checkpoint import CheckpointWarning, load_newest
from deepccg.experiment.config import RunConfig
from deepccg.experiment.recorded import recorded
from deepccg.records import RunDirectory


@dataclass(frozen=True)
class TrainedRun:
    """A learner and what its numbers mean.

    Args:
        learner: The learner as the run left it.
        class_names: The name of each label.
        shape: The shape of one input, without the batch axis.
        config: What was run.
    """

    learner: Learner
    class_names: tuple[str, ...]
    shape: tuple[int, ...]
    config: RunConfig


def load_run(
    directory: str | os.PathLike[str],
    *,
    learner: type[Learner] | None = None,
    device: str = "cpu",
) -> TrainedRun:
    """The learner of a run directory, with the names of its classes, on ``device``.

    A run of a learner class of your own is loaded by passing that class: a directory cannot make
    this function import code.
    """
    target = RunDirectory(Path(directory))
    config, chosen = recorded(target, learner)
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
    directory: str | os.PathLike[str],
    *,
    learner: type[Learner] | None = None,
    device: str = "cpu",
) -> Learner:
    """The trained learner of a run directory; see ``load_run``."""
    return load_run(directory, learner=learner, device=device).learner
