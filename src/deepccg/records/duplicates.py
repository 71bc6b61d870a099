"""Several runs of one experiment and seed: which of them counts."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def duplicate_rank(path: str | os.PathLike[str], config: Mapping[str, Any]) -> tuple[bool, Path]:
    """Of runs of one experiment and seed the one of lowest rank counts, the others do not.

    A run that also followed the representation shift comes after one that did not: its times and
    passes are not those of the experiment alone. Else the first path: a run directory has neither
    a time, nor an order of commits.

    Args:
        path: The run's directory.
        config: What was run, as recorded.

    >>> plain, followed = {"evaluation": {}}, {"evaluation": {"shift_images": 100}}
    >>> duplicate_rank("b", plain) < duplicate_rank("c", plain) < duplicate_rank("a", followed)
    True
    """
    evaluation = config.get("evaluation")
    followed = isinstance(evaluation, Mapping) and evaluation.get("shift_images") is not None
    return followed, Path(path)
