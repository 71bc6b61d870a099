"""When a run saves a checkpoint. Its results do not depend on it."""

import re
import time

from deepccg.core import InputError

CHECKPOINT_SECONDS = 60.0  # a checkpoint takes some hundredths of a second


class CheckpointSchedule:
    """Every so many steps, or as soon as so many seconds have passed since the last.

    Args:
        every: Steps (``100``), seconds (``"30s"``), or ``None`` for ``CHECKPOINT_SECONDS``.

    >>> schedule = CheckpointSchedule(3)
    >>> [step for step in range(1, 10) if schedule.due(step)]
    [3, 6, 9]
    """

    def __init__(self, every: int | str | None = None) -> None:
        self._steps, self._seconds = _parsed(every)
        self.saved()

    def due(self, step: int) -> bool:
        """Whether to save after ``step``."""
        if self._steps is not None:
            return step % self._steps == 0
        wait = CHECKPOINT_SECONDS if self._seconds is None else self._seconds
        return time.monotonic() - self._saved_at > wait

    def saved(self) -> None:
        """A checkpoint was saved just now."""
        self._saved_at = time.monotonic()


def _parsed(every: int | str | None) -> tuple[int | None, float | None]:
    """Steps and seconds; one of them, or neither."""
    if every is None:
        return None, None
    text = str(every).strip()
    if re.fullmatch(r"\d+(\.\d*)?s", text, re.ASCII):
        return None, float(text[:-1])
    if re.fullmatch(r"\d+", text, re.ASCII) and int(text) > 0:
        return int(text), None
    raise InputError(
        f"checkpoint_every takes a number of steps, such as 100, or of seconds, such as 30s; "
        f"got {every!r}"
    )
