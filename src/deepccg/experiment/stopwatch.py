"""How long a run learns and is scored. Its results do not depend on it."""

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from deepccg.records import Timing, read_timings, timings_text

# The file is written before the checkpoint that it belongs to. Cut in between, a run goes on from
# the checkpoint before, or if that is damaged from the one before that.
KEPT = 3


class Stopwatch:
    """Adds up the seconds of the steps that count; a run that is continued goes on with its own.

    Args:
        path: The run's ``timing.json``.
        position: Steps done. If the file does not know them, as of a run that an earlier version
            began, the whole will not be known and nothing is written.
        write: Replaces a file's content.
    """

    def __init__(self, path: Path, position: int, write: Callable[[Path, bytes], None]) -> None:
        self._path, self._write = path, write
        known = read_timings(path) if position else [Timing(0)]
        self._saved = [timing for timing in known if timing.steps <= position]
        self._complete = bool(self._saved) and self._saved[0].steps == position
        before = self._saved[0] if self._complete else Timing(0)
        self._learning, self._evaluating = before.learning_seconds, before.evaluation_seconds

    @contextlib.contextmanager
    def learning(self) -> Iterator[None]:
        """Surround a step."""
        began = time.perf_counter()
        yield
        self._learning += time.perf_counter() - began

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Surround scoring."""
        began = time.perf_counter()
        yield
        self._evaluating += time.perf_counter() - began

    def save(self, step: int) -> None:
        """Write it down, before the checkpoint of ``step`` is saved."""
        if not self._complete:
            return
        now = Timing(step, round(self._learning, 6), round(self._evaluating, 6))
        self._saved = [now, *(timing for timing in self._saved if timing.steps)][:KEPT]
        self._write(self._path, timings_text(self._saved))
