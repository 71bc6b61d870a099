"""Presets: rules that set fields by preset, method, data set, stream and scenario."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from deepccg.core import Config, InputError, did_you_mean, validated
from deepccg.experiment.config import Scenario
from deepccg.records import merge, parse_toml, read_toml

# The presets that come with the package; a file of rules is one, too.
PRESETS = ("default", "strong", "paper")
SUCCESSORS = {"as-printed": "paper"}  # of presets that were removed; records name them
_FILE = "file:"  # marks, in a complete configuration, that a preset file has been applied

Names = str | tuple[str, ...] | None


class Rule(Config):
    """Settings for the runs that match."""

    preset: Names = None
    method: Names = None
    dataset: Names = None
    stream: Names = None
    scenario: Scenario | tuple[Scenario, ...] | None = None
    set: dict[str, Any] = Field(default_factory=dict)

    def matches(self, key: Mapping[str, str]) -> bool:
        """Whether every name that this rule gives is the key's."""
        return all(
            names is None or key[name] in ((names,) if isinstance(names, str) else names)
            for name, names in self
            if name != "set"
        )


def preset_settings(key: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings of all rules that match (preset, method, dataset, stream, scenario)."""
    preset, rules = key["preset"], _package_rules()
    if preset not in PRESETS:
        rules += () if preset.startswith(_FILE) else _rules_of_file(preset)
        key = {**key, "preset": "default"}
    settings: dict[str, Any] = {}
    for rule in rules:
        if rule.matches(key):
            settings = override(settings, rule.set)
    return settings


@cache
def _package_rules() -> tuple[Rule, ...]:
    text = files("deepccg.experiment").joinpath("presets.toml").read_text(encoding="utf-8")
    return _rules(parse_toml(text), "presets.toml")


def recorded_name(preset: str) -> str:
    """Return how a complete configuration names its preset: a file by its name, not its path.

    >>> recorded_name("paper"), recorded_name("/home/me/mine.toml")
    ('paper', 'file:mine.toml')
    """
    known = preset in (*PRESETS, *SUCCESSORS) or preset.startswith(_FILE)
    return preset if known else _FILE + Path(preset).name


def override(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge settings; one way to give the memory's size replaces the other.

    >>> override({"memory_per_class": 10, "seed": 1}, {"memory": 50})
    {'seed': 1, 'memory': 50}
    """
    ways = ("memory", "memory_per_class", "memory_bytes")
    replaced = ways if any(way in over for way in ways) else ()
    return merge({key: value for key, value in base.items() if key not in replaced}, over)


def _rules_of_file(preset: str) -> tuple[Rule, ...]:
    path = Path(preset)
    try:
        content = read_toml(path) if path.is_file() else None
    except OSError as error:
        raise InputError(f"cannot read the preset {preset!r}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path.name} is not valid TOML: {error}") from None
    if content is None and preset in SUCCESSORS:
        raise InputError(f"preset {preset} was removed: {SUCCESSORS[preset]} comes nearest to it")
    if content is None:
        raise InputError(
            f"preset {preset!r} is neither one of {', '.join(PRESETS)} nor a file"
            f"{did_you_mean(preset, PRESETS)}"
        )
    return _rules(content, path.name)


def _rules(content: dict[str, Any], name: str) -> tuple[Rule, ...]:
    rules = content.pop("rule", [])
    tables = isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules)
    if content or not tables:
        raise InputError(f"{name}: a preset file holds [[rule]] tables and nothing else")
    checked = tuple(validated(Rule, rule, f"{name} rule {n}") for n, rule in enumerate(rules, 1))
    for n, rule in enumerate(checked, 1):
        method = rule.set.get("method", {})
        if not isinstance(method, dict) or "name" in method or "preset" in rule.set:
            raise InputError(f"{name} rule {n} sets method.name or preset: only you do")
    return checked
