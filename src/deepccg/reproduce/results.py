"""Finished runs, found by what was run, and each cell of a table: our accuracy and the paper's."""

import csv
import io
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from deepccg.core import DeepCCGError
from deepccg.experiment import RunConfig, resolve_recorded
from deepccg.methods import METHODS
from deepccg.records import (
    Estimate,
    Interval,
    RecordedRun,
    RecordError,
    estimate,
    find_runs,
    paired_difference,
    summary,
)
from deepccg.reproduce.plan import Column, Plan, Variant

Runs: TypeAlias = Mapping[tuple[Variant, Column, int], RecordedRun]

# How a run is computed and what it was called, not what it is. Threads, device and kernels change
# rounding, and so the score of a long run: on CIFAR-100 by about a point.
_HOW_COMPUTED = {"threads", "device", "kernels", "preset"}
# What changes neither what is learned nor the final score.
_SCORING_TIMES = ("every", "shift_images")


class FinishedRuns:
    """The finished runs in directories and archives. Records suffice: no checkpoint is needed.

    Runs of classes that are neither the package's nor among ``methods``, which the user asks for,
    do not count: records cannot make this program import code.
    """

    def __init__(self, paths: Iterable[Path], methods: Collection[str] = ()) -> None:
        self._found: dict[str, list[tuple[RunConfig, RecordedRun]]] = defaultdict(list)
        for run in find_runs(paths):
            config = _finished_config(run, methods)
            if config is not None:
                self._found[_identity(config)].append((config, run))

    def find(self, config: RunConfig) -> RecordedRun | None:
        """Return the run nearest to ``config``, with the scores and shifts that it asks for."""
        asked = config.evaluation
        there = [
            (_nearness(config, other), run.recency, run)
            for other, run in self._found.get(_identity(config), [])
            if asked.shift_images in (None, other.evaluation.shift_images)
            and (asked.every == "end" or other.evaluation.every == asked.every)
        ]
        return max(there, key=lambda each: each[:2])[2] if there else None


def _nearness(asked: RunConfig, other: RunConfig) -> int:
    """Return 2 for exactly what is asked, 1 if scored at other times, 0 if shift was recorded."""
    as_asked = other.kernels if asked.kernels == "auto" else asked.kernels
    if other == asked.model_copy(update={"kernels": as_asked}):
        return 2
    return 1 if other.evaluation.shift_images is None else 0


def _finished_config(run: RecordedRun, methods: Collection[str]) -> RunConfig | None:
    """Return what was run; ``None`` if it is damaged, unfinished, or code not asked for."""
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


@dataclass(frozen=True)
class CellResult:
    """One cell: the accuracy of each seed's run, a fraction, and the paper's.

    The difference is from the reference, over the seeds that both have; the reference has none.
    """

    variant: Variant
    column: Column
    values: Mapping[int, float]
    paper: Estimate | None
    difference: Interval | None

    @property
    def accuracy(self) -> Estimate | None:
        """Over the seeds; ``None`` where there is no run."""
        return estimate(list(self.values.values())) if self.values else None


def results(plan: Plan, runs: Runs) -> list[CellResult]:
    """Return every cell, column by column; one without runs has no values."""
    found = []
    for column in plan.columns:
        rows = plan.rows(column)
        values = {variant: _values(plan, variant, column, runs) for variant in rows}
        base = values.get(plan.reference, {})
        for variant in rows:
            own = values[variant]
            lead = None if variant == plan.reference else paired_difference(own, base)
            found.append(CellResult(variant, column, own, plan.paper(variant, column), lead))
    return found


def results_csv(found: Sequence[CellResult], reference: Variant) -> str:
    """Return the cells as CSV with all digits: percent, empty where there is none."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(
        (
            "dataset", "stream", "scenario", "memory", "method", "preset", "seeds",
            "accuracy", "standard_error", "paper_accuracy", "paper_standard_error",
            "reference", "difference", "difference_low", "difference_high", "paired_seeds",
        )
    )  # fmt: skip
    for each in found:
        lead = each.difference
        numbers = [*_two(each.accuracy), *_two(each.paper)]
        difference = (lead.value, lead.low, lead.high) if lead else (None,) * 3
        cell = [*astuple(each.column), *astuple(each.variant), len(each.values)]
        compared = [reference, *map(_percent, difference), lead.n if lead else 0]
        writer.writerow([*cell, *map(_percent, numbers), *compared])
    return file.getvalue()


def _values(plan: Plan, variant: Variant, column: Column, runs: Runs) -> dict[int, float]:
    """Return the score of each seed that has one."""
    found = {seed: runs.get((variant, column, seed)) for seed in plan.seeds}
    scores = {seed: summary(run.evaluations())[column.metric] for seed, run in found.items() if run}
    return {seed: score for seed, score in scores.items() if score is not None}


def _two(value: Estimate | None) -> tuple[float | None, float | None]:
    return (value.mean, value.standard_error) if value else (None, None)


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else round(100 * fraction, 4)
