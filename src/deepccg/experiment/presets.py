"""The one preset mechanism: rules keyed by method, data set, stream and scenario."""

from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field

from deepccg.core import Config, InputError, validated
from deepccg.experiment.config import Scenario
from deepccg.records import parse_toml, read_toml

PRESETS = ("default", "paper", "as-printed")
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
        """Whether every name this rule gives is the key's."""
        return all(
            wanted is None
            or key[name] == wanted
            or (not isinstance(wanted, str) and key[name] in wanted)
            for name, wanted in (
                ("preset", self.preset),
                ("method", self.method),
                ("dataset", self.dataset),
                ("stream", self.stream),
                ("scenario", self.scenario),
            )
        )


def preset_settings(key: Mapping[str, str]) -> dict[str, Any]:
    """All settings that the rules give for ``key`` (preset, method, dataset, stream, scenario)."""
    own = files("deepccg.experiment").joinpath("presets.toml").read_text(encoding="utf-8")
    rules = _rules(parse_toml(own), "presets.toml")
    preset = key["preset"]
    if preset.startswith(_FILE):
        key = {**key, "preset": "default"}
    elif preset not in PRESETS:
        rules += _rules_of_file(preset)
        key = {**key, "preset": "default"}
    settings: dict[str, Any] = {}
    for rule in rules:
        if rule.matches(key):
            settings = laid_over(settings, rule.set)
    return settings


def recorded_name(preset: str) -> str:
    """What a complete configuration says of its preset: of a file its name, not its path.

    >>> recorded_name("paper"), recorded_name("/home/me/mine.toml")
    ('paper', 'file:mine.toml')
    """
    known = preset in PRESETS or preset.startswith(_FILE)
    return preset if known else _FILE + Path(preset).name


def laid_over(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``merged``, except that one way to give the memory takes the place of the other.

    >>> laid_over({"memory_per_class": 10, "seed": 1}, {"memory": 50})
    {'seed': 1, 'memory': 50}
    """
    ways = ("memory", "memory_per_class")
    replaced = ways if any(way in over for way in ways) else ()
    return merged({key: value for key, value in base.items() if key not in replaced}, over)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Nested dictionaries laid over one another; ``over`` wins.

    >>> merged({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def _rules_of_file(preset: str) -> list[Rule]:
    path = Path(preset)
    try:
        if not path.is_file():
            raise InputError(f"preset {preset!r} is neither one of {', '.join(PRESETS)} nor a file")
        content = read_toml(path)
    except OSError as error:
        raise InputError(f"cannot read the preset {preset!r}: {error.strerror}") from None
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{path.name} is not valid TOML: {error}") from None
    return _rules(content, path.name)


def _rules(content: dict[str, Any], name: str) -> list[Rule]:
    rules = content.pop("rule", [])
    tables = isinstance(rules, list) and all(isinstance(rule, dict) for rule in rules)
    if content or not tables:
        raise InputError(f"{name}: a preset file holds [[rule]] tables and nothing else")
    checked = [validated(Rule, rule, f"{name} rule {n}") for n, rule in enumerate(rules, 1)]
    for n, rule in enumerate(checked, 1):
        method = rule.set.get("method", {})
        if not isinstance(method, dict) or "name" in method or "preset" in rule.set:
            raise InputError(f"{name} rule {n} sets method.name or preset: only you do")
    return checked
