"""Finding finished runs by what was run, not by their names."""

import json
from collections import defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from deepccg.core import DeepCCGError
from deepccg.experiment import RunConfig, resolve_recorded
from deepccg.methods import METHODS
from deepccg.records import RecordedRun, RecordError, find_runs

# How a run is computed and what it was called, not what it is. Threads, device and kernels change
# rounding, and thereby the score of a long run: on CIFAR-100 by about a point.
_HOW_COMPUTED = {"threads", "device", "kernels", "preset"}
# What changes neither what is learned nor the final score.
_SCORING_TIMES = ("every", "shift_images")


class FinishedRuns:
    """The finished runs in directories and archives. Records suffice: no checkpoint is needed.

    Args:
        paths: Directories with runs below, and archives.
        methods: What the user asks for. Runs of other classes that are not the package's do not
            count: records cannot make this program import code.
    """

    def __init__(self, paths: Iterable[Path], methods: Collection[str] = ()) -> None:
        self._found: dict[str, list[tuple[RunConfig, RecordedRun]]] = defaultdict(list)
        for run in find_runs(paths):
            config = _finished_config(run, methods)
            if config is not None:
                self._found[_identity(config)].append((config, run))

    def find(self, config: RunConfig) -> RecordedRun | None:
        """The run nearest to ``config``, with shift records if it asks for them."""
        followed = config.evaluation.shift_images
        there = [
            (_nearness(config, other), run.recency, run)
            for other, run in self._found.get(_identity(config), [])
            if followed is None or other.evaluation.shift_images == followed
        ]
        return max(there, key=lambda each: each[:2])[2] if there else None


def _nearness(asked: RunConfig, other: RunConfig) -> int:
    """2 for exactly what is asked, 1 if scored at other times, 0 if shift was recorded as well."""
    as_asked = other.kernels if asked.kernels == "auto" else asked.kernels
    if other == asked.model_copy(update={"kernels": as_asked}):
        return 2
    return 1 if other.evaluation.shift_images is None else 0


def _finished_config(run: RecordedRun, methods: Collection[str]) -> RunConfig | None:
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


def _identity(config: RunConfig) -> str:
    fields = config.model_dump(mode="json", exclude=_HOW_COMPUTED, exclude_none=True)
    for name in _SCORING_TIMES:
        fields["evaluation"].pop(name, None)
    return json.dumps(fields, sort_keys=True)
