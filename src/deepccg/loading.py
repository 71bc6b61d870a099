"""``deepccg.load``: what was saved, whichever kind it is."""

import os
from pathlib import Path
from typing import Any

from torch import nn

from deepccg.core import Learner


def load(
    path: str | os.PathLike[str],
    *,
    learner: type[Learner] | None = None,
    encoder: nn.Module | None = None,
    device: str | None = None,
) -> Any:
    """Load the trained learner of a run directory, or the classifier that a file holds.

    Args:
        path: A directory that a run has written, or a file that a classifier's ``save`` has.
        learner: The class, for a run of a learner of your own: see ``load_run``.
        encoder: The module, for a classifier with one of your own.
        device: Where it shall live; by default a run on the CPU, a classifier where it was.
    """
    if Path(path).is_file():
        from deepccg.estimator.persistence import load_any_classifier

        return load_any_classifier(path, encoder, device)
    from deepccg.experiment import load as load_learner

    return load_learner(path, learner=learner, device="cpu" if device is None else device)
