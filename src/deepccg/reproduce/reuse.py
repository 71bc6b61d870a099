"""Finding runs that are there already, by what was run and not by what they are called."""

import json
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from deepccg.core import DeepCCGError
from deepccg.experiment import RunConfig, resolve_recorded
from deepccg.methods import METHODS
from deepccg.records import RecordError, RunDirectory, find_runs

# How a run is computed and what it was called, not what it is. Threads, device and kernels change
# rounding, and thereby the score of a long run: on CIFAR-100 by about a point.
_IDLE = {"threads", "device", "kernels", "preset"}
# What changes neither what is learned nor the final score.
_IDLE_SCORING = ("every", "shift_images")


class Finished:
    """The finished runs below a directory. Their records suffice: a checkpoint is not needed.

    Args:
        directory: Where to look; it need not be there.
        methods: What the user asks for. Runs of other classes of the user's own do not count: a
            directory cannot have code imported.
    """

    def __init__(self, directory: Path, methods: Collection[str] = ()) -> None:
        self._found: dict[str, list[tuple[RunConfig, RunDirectory]]] = defaultdict(list)
        for run in find_runs([directory]) if directory.is_dir() else []:
            config = _finished_config(run, methods)
            if config is not None:
                self._found[_question(config)].append((config, run))

    def find(self, config: RunConfig) -> RunDirectory | None:
        """The run that best answers what ``config`` asks, its shift records included."""
        followed = config.evaluation.shift_images
        there = [
            (_nearness(config, other), run.records_path.stat().st_mtime_ns, run)
            for other, run in self._found.get(_question(config), [])
            if followed is None or other.evaluation.shift_images == followed
        ]
        return max(there, key=lambda each: each[:2])[2] if there else None


def _nearness(asked: RunConfig, other: RunConfig) -> int:
    """2 for just what is asked, 1 for a run that is scored at other times, 0 with shift besides."""
    as_asked = other.kernels if asked.kernels == "auto" else asked.kernels
    if other == asked.model_copy(update={"kernels": as_asked}):
        return 2
    return 1 if other.evaluation.shift_images is None else 0


def _finished_config(run: RunDirectory, methods: Collection[str]) -> RunConfig | None:
    """What was run, complete; ``None`` for what is damaged, unfinished or code not asked for."""
    try:
        settings: dict[str, Any] = run.config()
        method = settings.get("method", {})
        name = str(method.get("name")) if isinstance(method, dict) else ""
        if (name not in METHODS and name not in methods) or not run.finished:
            return None
        return resolve_recorded(settings)
    except (DeepCCGError, RecordError):
        return None


def _question(config: RunConfig) -> str:
    fields = config.model_dump(mode="json", exclude=_IDLE, exclude_none=True)
    for name in _IDLE_SCORING:
        fields["evaluation"].pop(name, None)
    return json.dumps(fields, sort_keys=True)
