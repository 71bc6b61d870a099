"""From settings to a complete configuration, and from that to the command that runs it again.

Settings come from flags, files and keyword arguments, as tables or with dotted names, and leave
most fields open. ``resolve`` fills these in, from the preset first and then from the defaults.
"""

import contextlib
import importlib
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepccg.core import InputError, Learner, did_you_mean, validated
from deepccg.core.config import check_setting_sizes, not_a_field
from deepccg.experiment.config import RunConfig
from deepccg.experiment.presets import override, preset_settings, recorded_name
from deepccg.methods import METHODS
from deepccg.records import flatten, merge, unflatten
from deepccg.streams import TASK_FREE

MOST_SEEDS = 10_000

_FLAGS = {
    "dataset": "--dataset",
    "stream.kind": "--stream",
    "scenario": "--scenario",
    "method.name": "--method",
    "preset": "--preset",
    "memory": "--memory",
    "memory_per_class": "--memory-per-class",
    "memory_bytes": "--memory-bytes",
    "evaluation.validation": "--validation",
    "evaluation.every": "--eval-every",
    "evaluation.images": "--eval-images",
    "evaluation.shift_images": "--shift-images",
    "device": "--device",
    "threads": "--threads",
}
_ALWAYS = ("dataset", "stream.kind", "scenario", "method.name")


def resolve(settings: Mapping[str, Any], learner: type[Learner] | None = None) -> RunConfig:
    """Complete a configuration: the user's settings over the preset's over the defaults.

    Args:
        settings: Nested, or with dotted keys such as ``method.selector``.
        learner: A class of the user's own, instead of a method's name.
    """
    given = nested(settings)
    if learner is not None:
        given = merge(given, {"method": {"name": _import_path(learner)}})
    check_setting_sizes(given)
    _check_names(given, learner)
    outline = validated(RunConfig, given)
    key = {
        "preset": outline.preset,
        "method": outline.method.name,
        "dataset": outline.dataset,
        "stream": outline.stream.kind,
        "scenario": outline.scenario,
    }
    config = validated(RunConfig, override(preset_settings(key), given))
    config = config.model_copy(update={"preset": recorded_name(config.preset)})
    return _with_method_fields(config, learner or learner_class(config.method.name))


def _check_names(given: Mapping[str, Any], learner: type[Learner] | None) -> None:
    """Reject a field that does not exist; the one that is meant may be in a table, as method.lr."""
    unknown = next((name for name in given if name not in RunConfig.model_fields), None)
    if unknown is None:
        return
    defaults = RunConfig()
    method = validated(RunConfig, {"method": given.get("method", defaults.method)}).method
    own = (learner or learner_class(method.name)).Config.model_fields
    known = flatten({**defaults.model_dump(exclude={"method"}), "method": own})
    raise InputError(not_a_field(unknown, unknown, list(known)))


def resolve_recorded(settings: Mapping[str, Any]) -> RunConfig:
    """Complete a recorded configuration: fields younger than the run get their defaults.

    A field's default is what was done before the field existed. Presets are not applied: they may
    have changed since the run.
    """
    config = validated(RunConfig, settings)
    return _with_method_fields(config, learner_class(config.method.name))


def resolve_config(config: RunConfig, learner: type[Learner] | None = None) -> RunConfig:
    """Complete a configuration object; one that leaves nothing open is only checked."""
    if not _is_complete(config, learner):
        return resolve(config.model_dump(mode="json", exclude_none=True), learner)
    _check_combinations(config, learner or learner_class(config.method.name))
    return config


def _is_complete(config: RunConfig, learner: type[Learner] | None) -> bool:
    """Whether every field was given, those of the method included, and the preset was applied."""
    if learner is not None and config.method.name != _import_path(learner):
        return False
    if (config.memory, config.memory_per_class, config.memory_bytes) == (None, None, None):
        return False
    tables = (config, config.stream, config.network, config.evaluation)
    given = all(table.model_fields_set >= table.model_dump().keys() for table in tables)
    kind = (learner or learner_class(config.method.name)).Config
    fields = validated(kind, config.method.fields, "method").model_dump()
    applied = config.preset == recorded_name(config.preset)
    return given and applied and config.method.fields.keys() == fields.keys()


def _with_method_fields(config: RunConfig, learner: type[Learner]) -> RunConfig:
    """Check the method's fields and add the defaults of those that are missing."""
    _check_combinations(config, learner)
    fields = validated(learner.Config, config.method.fields, "method")
    method = {"name": config.method.name, **fields.model_dump(mode="json")}
    complete = merge(config.model_dump(mode="json"), {"method": method})
    complete["method"] = {k: v for k, v in complete["method"].items() if k in method}
    return validated(RunConfig, complete)


def _check_combinations(config: RunConfig, learner: type[Learner]) -> None:
    ways = (config.memory, config.memory_per_class, config.memory_bytes)
    if sum(way is not None for way in ways) > 1:
        raise InputError("give memory (in total), memory_per_class or memory_bytes: one of them")
    if config.stream.joint is not None and config.evaluation.shift_images is not None:
        raise InputError(
            "evaluation.shift_images needs tasks that come one after the other: "
            "a joint stream has all of them at once"
        )
    kind = config.stream.kind
    fields = validated(learner.Config, config.method.fields, "method")
    if kind in TASK_FREE and config.stream.joint is None and learner.needs_tasks(fields):
        raise InputError(
            f"{config.method.name} needs to know where tasks end, and the batches of a {kind} "
            f"stream come without tasks: choose another stream or method"
        )


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as tables, also where they have dotted keys or a bare name.

    >>> nested({"method": "er", "method.lr": 0.2, "stream": "joint"})
    {'method': {'name': 'er', 'lr': 0.2}, 'stream': {'joint': 'tasks', 'kind': 'disjoint'}}
    """
    result = _named_tables(settings)
    stream = result.get("stream")
    if isinstance(stream, Mapping) and stream.get("kind") == "joint":
        result["stream"] = {"joint": "tasks", **stream, "kind": "disjoint"}
    return result


def overlay(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Lay settings over others, each with tables, dotted keys or bare names.

    >>> overlay({"method": {"name": "er", "lr": 0.2}, "memory": 50}, {"method": "sgd"})
    {'method': {'name': 'sgd', 'lr': 0.2}, 'memory': 50}
    """
    return override(_named_tables(base), _named_tables(over))


def _named_tables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Tables, with bare names of a method and a stream as ``{"name": ...}``, ``{"kind": ...}``."""
    given = {key: value for key, value in settings.items() if value is not None}
    for table, field in (("method", "name"), ("stream", "kind")):
        if isinstance(given.get(table), str):
            given[table] = {field: given[table]}
    return unflatten(given)


def learner_class(name: str) -> type[Learner]:
    """Return the class of a method: a name of ``METHODS``, or ``package.module:Class``.

    The second form imports code, also from the working directory: use it for names that the user
    typed, never for names read from a file.
    """
    if name in METHODS:
        return METHODS[name]
    module_name, colon, class_name = name.partition(":")
    if not colon or not all(part.isidentifier() for part in module_name.split(".")):
        raise InputError(
            f"unknown method {name!r}{did_you_mean(name, METHODS)}: choose one of "
            f"{', '.join(METHODS)}, or package.module:Class"
        )
    _import_from_working_directory()
    try:
        found = importlib.import_module(module_name)
        for part in class_name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"cannot import method {name}: {error}") from None
    if not (isinstance(found, type) and issubclass(found, Learner)):
        raise InputError(f"{name} is not a subclass of deepccg.Learner")
    return found


def _import_from_working_directory() -> None:
    """Put the working directory on the path, as ``python -m`` does; workers inherit it."""
    with contextlib.suppress(OSError):  # the directory was removed
        here = str(Path.cwd())
        if here not in sys.path and "" not in sys.path:
            sys.path.insert(0, here)


def _import_path(learner: type[Learner]) -> str:
    return f"{learner.__module__}:{learner.__qualname__}"


def run_command(config: RunConfig, seeds: str, data_dir: str | None = None) -> str | None:
    """Return the command that runs a complete configuration, or ``None`` if no flags lead to it.

    There is none for a class of the user's own: to see its fields, the name in the record would
    have to be imported. Only settings that the presets of this version do not make are spelled out.
    ``seeds`` and ``data_dir`` become the values of ``--seeds`` and ``--data-dir``.
    """
    if config.method.name not in METHODS:
        return None
    try:
        config = resolve_recorded(config.model_dump(mode="json", exclude_none=True))
        wanted = flatten(config.model_dump(mode="json", exclude_none=True))
        given = {name: wanted[name] for name in _ALWAYS}
        if wanted["preset"] != "default":
            given["preset"] = wanted["preset"]
        for _ in range(2):  # what is given may decide which further presets apply
            found = flatten(resolve(given).model_dump(mode="json", exclude_none=True))
            given |= {k: v for k, v in wanted.items() if k != "seed" and found.get(k) != v}
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


def parse_seeds(text: str, name: str = "--seeds") -> list[int]:
    """Parse seeds as people write them: ``0``, ``0-2`` or ``0,3,5-7``; each is returned once.

    ``name`` is the option or field that messages speak of.

    >>> parse_seeds("0,3,5-7,3")
    [0, 3, 5, 6, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            raise InputError(f"{name} {text}: write for example 0, 0-2 or 0,3,5")
        if max(len(first), len(last)) > 18:
            raise InputError(f"{name} {text}: seeds have at most 18 digits")
        named = range(int(first), int(last if dash else first) + 1)
        if len(seeds) + len(named) > MOST_SEEDS:
            raise InputError(f"{name} {text} names more than {MOST_SEEDS:,} seeds")
        seeds += named
    if not seeds:
        raise InputError(f"{name} {text} names no seed")
    return list(dict.fromkeys(seeds))
