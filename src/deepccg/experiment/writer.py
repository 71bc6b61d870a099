"""What a run keeps on disk while it learns."""

import contextlib
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deepccg.core import CannotWrite, InputError, Learner
from deepccg.experiment.guards import check_state
from deepccg.learners.state_file import save_state
from deepccg.methods import METHODS
from deepccg.records import (
    Record,
    RunDirectory,
    Timing,
    append_record,
    read_timings,
    timings_text,
    write_atomically,
)

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
        known = read_timings(path) if position else [Timing(0, 0.0, 0.0)]
        self._saved = [timing for timing in known if timing.steps <= position]
        self._complete = bool(self._saved) and self._saved[0].steps == position
        before = self._saved[0] if self._complete else Timing(0, 0.0, 0.0)
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


class Journal:
    """Writes records and checkpoints; if it cannot, says what is still good.

    Args:
        target: Where.
        about: What every checkpoint says of its run.
        step: The step of the last checkpoint; 0 if there is none.
        records: How many records there are.
        tell: Called with each record that was written.
    """

    def __init__(
        self,
        target: RunDirectory,
        about: Mapping[str, Any],
        step: int,
        records: int,
        tell: Callable[[Record], None] | None = None,
    ) -> None:
        self._target = target
        self._about = dict(about)
        self._saved = step
        self._records = records
        self._tell = tell

    @property
    def directory(self) -> Path:
        """Where all of it goes."""
        return self._target.path

    @property
    def saved(self) -> int:
        """The step of the last checkpoint; 0 if there is none."""
        return self._saved

    def record(self, record: Record) -> None:
        """Append a record, durably."""
        with self._writing(self._target.records_path):
            append_record(self._target.records_path, record)
        self._records += 1
        if self._tell is not None:
            self._tell(record)

    def file(self, path: Path, content: bytes) -> None:
        """Write a whole file, or leave the old one."""
        with self._writing(path):
            write_atomically(path, content)

    def checkpoint(self, learner: Learner, step: int, audit: Mapping[str, Any] | None) -> None:
        """Save the learner after ``step``; the checkpoint before is kept."""
        state = learner.state_dict()
        check_state(step, state)
        about = {**self._about, "position": step, "records": self._records, "audit": audit}
        path, previous = self._target.checkpoint_path, self._target.previous_path
        with self._writing(path):
            save_state(path, state, about, previous)
        self._saved = step

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            saved = f"the checkpoint of step {self._saved} is good" if self._saved else ""
            raise CannotWrite(
                f"cannot write {path}: {error.strerror or error}; "
                f"{saved or 'there is no checkpoint yet'}. When there is room, continue with "
                f"`{resume_command(self._target.path)}`"
            ) from None


def resume_command(
    directory: Path, data_dir: str | Path | None = None, method: str | None = None
) -> str:
    """What to type to continue a run; a class of the user's own has to be named again.

    >>> resume_command(Path("runs/a/seed-0"), "my data", "own:Method")
    "deepccg resume runs/a/seed-0 --data-dir 'my data' --method own:Method"
    """
    words = ["deepccg", "resume", str(directory)]
    words += [] if data_dir is None else ["--data-dir", str(data_dir)]
    words += [] if method is None or method in METHODS else ["--method", method]
    return shlex.join(words)
