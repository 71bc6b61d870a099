"""Finding runs that are there already, by what was run and not by what they are called."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from deepccg.core import DeepCCGError
from deepccg.experiment import RunConfig, resolve
from deepccg.methods import METHODS
from deepccg.records import RecordError, RunDirectory, find_runs

# What changes neither what is learned nor the final score.
_IDLE = {"threads", "device", "kernels", "preset"}
_IDLE_SCORING = ("every", "shift_images")


class Finished:
    """The finished runs below a directory. Their records suffice: a checkpoint is not needed.

    Args:
        directory: Where to look; it need not be there.
    """

    def __init__(self, directory: Path) -> None:
        self._found: dict[str, list[tuple[RunConfig, RunDirectory]]] = defaultdict(list)
        for run in find_runs([directory]) if directory.is_dir() else []:
            config = _finished_config(run)
            if config is not None:
                self._found[_question(config)].append((config, run))

    def find(self, config: RunConfig) -> RunDirectory | None:
        """A run that answers what ``config`` asks, its shift records included."""
        followed = config.evaluation.shift_images
        for other, run in self._found.get(_question(config), []):
            if followed is None or other.evaluation.shift_images == followed:
                return run
        return None


def _finished_config(run: RunDirectory) -> RunConfig | None:
    """What was run, complete; ``None`` for what is damaged, unfinished or code of the user's."""
    try:
        settings: dict[str, Any] = run.config()
        method = settings.get("method", {})
        if not isinstance(method, dict) or method.get("name") not in METHODS or not run.finished:
            return None
        return resolve(settings)  # also what a field that came later would have been
    except (DeepCCGError, RecordError):
        return None


def _question(config: RunConfig) -> str:
    fields = config.model_dump(mode="json", exclude=_IDLE, exclude_none=True)
    for name in _IDLE_SCORING:
        fields["evaluation"].pop(name, None)
    return json.dumps(fields, sort_keys=True)
