"""Nested settings, and the same with dotted names."""

from collections.abc import Mapping
from typing import Any


def flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the values of nested settings by their dotted names.

    >>> flatten({"seed": 0, "method": {"name": "er", "lr": 0.1}})
    {'seed': 0, 'method.name': 'er', 'method.lr': 0.1}
    """
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        inner = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return flat


def unflatten(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return dotted names as nested tables, the inverse of ``flatten``; also takes tables.

    >>> unflatten({"seed": 0, "method": {"name": "er", "lr": 0.1}, "method.lr": 0.2})
    {'seed': 0, 'method': {'name': 'er', 'lr': 0.2}}
    """
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        first, *inner = key.split(".")
        for part in reversed(inner):
            value = {part: value}
        nested = merge(nested, {first: value})
    return nested


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested settings; where both have a value, ``over`` wins.

    >>> merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}})
    {'a': {'b': 3, 'c': 2}}
    """
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = merge(below, value)
        result[key] = value
    return result
