"""The command that makes a run again."""

import json
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from deepccg.core import InputError
from deepccg.experiment.build import resolve, resolve_recorded
from deepccg.experiment.config import RunConfig
from deepccg.methods import METHODS

_FLAGS = {
    "dataset": "--dataset",
    "stream.kind": "--stream",
    "scenario": "--scenario",
    "method.name": "--method",
    "preset": "--preset",
    "memory": "--memory",
    "memory_per_class": "--memory-per-class",
    "evaluation.validation": "--validation",
    "evaluation.every": "--eval-every",
    "evaluation.images": "--eval-images",
    "evaluation.shift_images": "--shift-images",
    "device": "--device",
    "threads": "--threads",
}
_ALWAYS = ("dataset", "stream.kind", "scenario", "method.name")


def run_command(config: RunConfig, seeds: str, data_dir: str | None = None) -> str | None:
    """What to type for a complete configuration; ``None`` if no flags lead to it.

    Nor for a class of the user's own: it would have to be imported, because a record names it.

    Only what the presets of this version do not already say is spelled out.

    Args:
        config: What was run.
        seeds: As ``--seeds`` takes them.
        data_dir: What to say of where the data lies.
    """
    if config.method.name not in METHODS:
        return None
    try:
        config = resolve_recorded(config.model_dump(mode="json", exclude_none=True))
        wanted = dict(_flat(config.model_dump(mode="json")))
        given = {name: wanted[name] for name in _ALWAYS}
        if wanted["preset"] != "default":
            given["preset"] = wanted["preset"]
        for _ in range(2):  # what is given may decide which further presets apply
            there = dict(_flat(resolve(given).model_dump(mode="json")))
            given |= {k: v for k, v in wanted.items() if k != "seed" and there.get(k) != v}
        if resolve({**given, "seed": config.seed}) != config:
            return None
    except InputError:  # a preset file that is not here
        return None
    words = ["deepccg", "run"]
    for name, value in given.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words += [_FLAGS[name], text] if name in _FLAGS else ["--set", f"{name}={text}"]
    words += ["--seeds", seeds]
    words += [] if data_dir is None else ["--data-dir", data_dir]
    return shlex.join(words)


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value
