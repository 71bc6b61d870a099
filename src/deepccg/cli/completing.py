"""Recorded runs beside the presets of this version, for the report."""

from dataclasses import replace
from functools import cache
from typing import Any

from deepccg.core import DeepCCGError
from deepccg.experiment import PRESETS, RunConfig, resolve, resolve_recorded
from deepccg.methods import METHODS
from deepccg.records import flatten
from deepccg.report import Run

# What is learned, how, and how it is read; data, memory and scoring are in a table's heading.
_COMPARED = ("method.", "network.", "stream.batch_size", "stream.joint", "stream.epochs")


def completed(run: Run) -> Run:
    """With the fields that are younger than the run, and with what differs from its preset.

    A run of a method that this version does not know stays as recorded.
    """
    if str(run.config["method"].get("name")) not in METHODS:
        return run
    try:
        config = resolve_recorded(run.config)
        changes = _changes(config, config.preset)
        as_preset = any(not _changes(config, preset) for preset in PRESETS)
    except DeepCCGError:  # fields that this version does not take
        return run
    fields = config.model_dump(mode="json", exclude_none=True)
    return replace(run, config=fields, changes=changes, as_preset=as_preset)


def _changes(config: RunConfig, preset: str) -> dict[str, Any]:
    """The fields in which a run is not what ``preset`` makes of its method and setting."""
    there = _preset_fields(
        preset, config.method.name, config.dataset, config.stream.kind, config.scenario
    )
    return {key: value for key, value in _compared(config).items() if value != there.get(key)}


@cache
def _preset_fields(
    preset: str, method: str, dataset: str, stream: str, scenario: str
) -> dict[str, Any]:
    settings = {"preset": preset, "method": method, "dataset": dataset, "scenario": scenario}
    return _compared(resolve({**settings, "stream": stream}))


def _compared(config: RunConfig) -> dict[str, Any]:
    fields = flatten(config.model_dump(mode="json"))
    return {key: value for key, value in fields.items() if key.startswith(_COMPARED)}
