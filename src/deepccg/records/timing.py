"""``timing.json``: how long the steps of a run took, the one file that no two runs share.

It has a ``version``, and of the steps that the last checkpoint knows of their number (``steps``),
the seconds that learning took (``learning_seconds``) and those that scoring took
(``evaluation_seconds``). ``before`` has the same of the checkpoints before: a run that goes on from
one of them goes on with its times, so that no step counts twice, however often it was repeated.
"""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from deepccg.records.files import read_json_object
from deepccg.records.schema import RecordError, count, fields_of, finite, items, require

VERSION = 1


@dataclass(frozen=True)
class Timing:
    """Wall time, of the steps that count.

    Args:
        steps: How many they are, from the first.
        learning_seconds: In the learner's hands.
        evaluation_seconds: Scoring it, and following the representation shift.
    """

    steps: int
    learning_seconds: float = 0.0
    evaluation_seconds: float = 0.0

    def __post_init__(self) -> None:
        count("steps", self.steps)
        for name in ("learning_seconds", "evaluation_seconds"):
            finite(name, seconds := getattr(self, name))
            require(seconds >= 0, f"{name} must be at least 0, not {seconds}")


def timings_text(timings: Sequence[Timing]) -> bytes:
    """How the file is written; at least one timing, the newest first."""
    newest, *before = map(asdict, timings)
    content = {"version": VERSION, **newest, "before": before}
    return json.dumps(content, indent=2, allow_nan=False).encode() + b"\n"


def read_timings(path: str | os.PathLike[str]) -> list[Timing]:
    """What the file holds, the newest first; nothing if it is not there, or damaged.

    Nothing that is learned depends on it, so damage to it stops nobody.
    """
    content = read_json_object(path)
    if content is None or content.pop("version", None) != VERSION:
        return []
    try:
        before = items("before", content.pop("before", None))
        return [Timing(**fields_of(Timing, each)) for each in (content, *before)]
    except RecordError:
        return []
