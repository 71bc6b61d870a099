"""What a search is asked of: it goes into the preset as it is, so it must be what was searched."""

from collections.abc import Iterable, Mapping
from typing import Any

from deepccg.core import InputError
from deepccg.experiment import resolve

# What a rule is for, and the setting that it is compared with.
KEYS = {
    "method": "method.name",
    "dataset": "dataset",
    "stream": "stream.kind",
    "scenario": "scenario",
}

# A rule would not match the runs of the search, or would not set what they had.
_OPTIONS = {
    "method": "--method",
    "method.name": "--method",
    "dataset": "--dataset",
    "stream": "--stream",
    "stream.kind": "--stream",
    "scenario": "--scenario",
    "seed": "--seeds",
    "evaluation.validation": "--validation",
}


def check_fixed(fields: Iterable[str]) -> None:
    """Refuse fields that all runs of a search cannot be given by ``--set``."""
    for field in fields:
        if field in _OPTIONS:
            raise InputError(f"{field} cannot be fixed with --set: use {_OPTIONS[field]}")
        if field.partition(".")[0] == "evaluation":
            raise InputError(
                f"{field} cannot be fixed with --set: a search scores its runs at their end on "
                f"the training data that --validation holds out"
            )
        if field == "preset":
            raise InputError(
                "preset cannot be fixed with --set: a tuned preset stands on the default one; "
                "name the fields themselves"
            )


def check_settings(settings: Mapping[str, Any]) -> None:
    """Refuse what all runs of a search cannot have in common, before any is begun."""
    check_fixed(field for field in settings if field not in KEYS.values())
    if settings.get("stream.kind") == "joint":
        raise InputError(
            "a preset does not tell the stream joint from disjoint: "
            "use --stream disjoint --set stream.joint=tasks"
        )
    resolve(settings)
