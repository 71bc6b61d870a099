"""``timing.json``: how long the steps of a run took, the one file that no two runs share.

It has a ``version`` and, up to the last checkpoint, the number of ``steps``, the seconds spent
learning (``learning_seconds``) and scoring (``evaluation_seconds``). ``before`` has the same for
earlier checkpoints: a run that continues from one of them continues with its times, so that no step
counts twice, however often it was repeated.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError

from deepccg.records.files import read_json_object
from deepccg.records.validation import Count, NotNegative, record_class

VERSION = 1


@record_class
class Timing:
    """Wall time of the steps that count.

    Args:
        steps: How many they are, from the first.
        learning_seconds: Time spent in the learner.
        evaluation_seconds: Time spent scoring it and following the representation shift.
    """

    steps: Count
    learning_seconds: NotNegative
    evaluation_seconds: NotNegative


_TIMINGS: TypeAdapter[list[Timing]] = TypeAdapter(list[Timing])


def timings_text(timings: Sequence[Timing]) -> bytes:
    """The content of the file; at least one timing, the newest first."""
    newest, *before = map(asdict, timings)
    content = {"version": VERSION, **newest, "before": before}
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def read_timings(path: str | os.PathLike[str]) -> list[Timing]:
    """The timings in the file, the newest first; none if it is not there, or damaged."""
    return timings_from_json(read_json_object(path))


def timings_from_json(content: Mapping[str, Any] | None) -> list[Timing]:
    """The timings in the content of the file, the newest first; none if it is damaged.

    Nothing that is learned depends on them, so damage is not an error.
    """
    if content is None or content.get("version") != VERSION:
        return []
    newest = {key: value for key, value in content.items() if key not in ("version", "before")}
    before = content.get("before")
    try:
        return _TIMINGS.validate_python([newest, *before] if isinstance(before, list) else None)
    except ValidationError:
        return []
