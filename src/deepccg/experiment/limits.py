"""What no setting is: a tree without end, a number without measure, a text of pages."""

from collections.abc import Mapping
from typing import Any

from deepccg.core import InputError

DEEPEST = 16
LARGEST = 2**63 - 1
LONGEST = 10_000


def check_plain(values: Mapping[str, Any], where: str = "") -> None:
    """Refuse settings that are nested too deeply or too large to be meant."""
    waiting: list[tuple[tuple[str, ...], Any]] = [((where,) if where else (), values)]
    while waiting:
        path, value = waiting.pop()
        if len(path) > DEEPEST:
            raise InputError(f"{'.'.join(path[:3])}... is nested too deeply")
        if isinstance(value, Mapping):
            waiting += [((*path, str(key)), inner) for key, inner in value.items()]
        elif isinstance(value, list | tuple):
            waiting += [((*path, str(place)), inner) for place, inner in enumerate(value)]
        elif isinstance(value, int) and not -LARGEST <= value <= LARGEST:
            raise InputError(f"{'.'.join(path)} is a number of {value.bit_length()} bits")
        elif isinstance(value, str) and len(value) > LONGEST:
            raise InputError(f"{'.'.join(path)} is a text of {len(value):,} characters")
