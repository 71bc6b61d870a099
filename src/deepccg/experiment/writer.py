"""What a run writes while it learns: records, times, checkpoints, and when these are due."""

import contextlib
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deepccg.core import CannotWrite, Diverged, InputError, Learner
from deepccg.experiment.config import RunConfig
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
from deepccg.streams import Cursor

CHECKPOINT_SECONDS = 60.0  # a checkpoint takes some hundredths of a second
USUAL_LR = 0.1  # the highest step size that is recommended after divergence
# Times are written before the checkpoint that they belong to. A run that is killed in between
# continues from the checkpoint before, or if that is damaged from the one before that.
KEPT_TIMINGS = 3


class CheckpointSchedule:
    """When to save a checkpoint: every N steps, or once N seconds have passed since the last.

    Args:
        every: Steps (``100``), seconds (``"30s"``), or ``None`` for ``CHECKPOINT_SECONDS``.

    >>> schedule = CheckpointSchedule(3)
    >>> [step for step in range(1, 10) if schedule.due(step)]
    [3, 6, 9]
    """

    def __init__(self, every: int | str | None = None) -> None:
        self._steps: int | None = None
        self._seconds: float | None = None  # ``None``: CHECKPOINT_SECONDS
        text = "" if every is None else str(every).strip()
        if re.fullmatch(r"\d+(\.\d*)?s", text, re.ASCII):
            self._seconds = float(text[:-1])
        elif re.fullmatch(r"\d+", text, re.ASCII) and int(text) > 0:
            self._steps = int(text)
        elif every is not None:
            raise InputError(
                f"checkpoint_every takes a number of steps, such as 100, or of seconds, such as "
                f"30s; got {every!r}"
            )
        self.saved()

    def due(self, step: int) -> bool:
        """Whether to save after ``step``."""
        if self._steps is not None:
            return step % self._steps == 0
        wait = CHECKPOINT_SECONDS if self._seconds is None else self._seconds
        return time.monotonic() - self._saved_at > wait

    def saved(self) -> None:
        """Note that a checkpoint was saved just now."""
        self._saved_at = time.monotonic()


class Stopwatch:
    """Adds up the seconds spent learning and evaluating; a continued run adds to its own.

    Args:
        path: The run's ``timing.json``.
        position: Steps done. If the file does not cover them, as in a run that an earlier version
            began, the totals are unknown and nothing is written.
        write: Replaces a file's content.
    """

    def __init__(self, path: Path, position: int, write: Callable[[Path, bytes], None]) -> None:
        self._path, self._write = path, write
        known = read_timings(path) if position else [Timing(0, 0.0, 0.0)]
        self._saved = [timing for timing in known if timing.steps <= position]
        self._complete = bool(self._saved) and self._saved[0].steps == position
        before = self._saved[0] if self._complete else Timing(0, 0.0, 0.0)
        self._seconds = {"learn": before.learning_seconds, "evaluate": before.evaluation_seconds}

    @contextlib.contextmanager
    def timing(self, activity: Literal["learn", "evaluate"]) -> Iterator[None]:
        """Add the time spent inside the block."""
        began = time.perf_counter()
        yield
        self._seconds[activity] += time.perf_counter() - began

    def add(self, activity: Literal["learn", "evaluate"], seconds: float) -> None:
        """Add time that was spent elsewhere."""
        self._seconds[activity] += seconds

    def save(self, step: int) -> None:
        """Write the times; call it before the checkpoint of ``step`` is saved."""
        if not self._complete:
            return
        learning, evaluating = (round(seconds, 6) for seconds in self._seconds.values())
        now = Timing(step, learning, evaluating)
        self._saved = [now, *(timing for timing in self._saved if timing.steps)][:KEPT_TIMINGS]
        self._write(self._path, timings_text(self._saved))


@dataclass
class RunWriter:
    """Writes records, files and checkpoints; its errors say which checkpoint is still good."""

    target: RunDirectory
    about: Mapping[str, Any]  # facts about the run that every checkpoint holds
    saved: int  # the step of the last checkpoint; 0 if there is none
    records: int  # how many there are
    on_record: Callable[[Record], None]  # called with each record that was written

    def record(self, record: Record) -> None:
        """Append a record, durably."""
        with self._writing(self.target.records_path):
            append_record(self.target.records_path, record)
        self.records += 1
        self.on_record(record)

    def file(self, path: Path, content: bytes) -> None:
        """Write a whole file, or leave the old one."""
        with self._writing(path):
            write_atomically(path, content)

    def checkpoint(self, learner: Learner, step: int, audit: Mapping[str, Any] | None) -> None:
        """Save the learner after ``step``; the checkpoint before is kept."""
        state = learner.state_dict()
        check_state(step, state)
        about = {**self.about, "position": step, "records": self.records, "audit": audit}
        path, previous = self.target.checkpoint_path, self.target.previous_path
        with self._writing(path):
            save_state(path, state, about, previous)
        self.saved = step

    @contextlib.contextmanager
    def explain_divergence(self, config: RunConfig, cursor: Cursor) -> Iterator[None]:
        """Add to ``Diverged`` when it happened, what is saved and which step size may help."""
        try:
            yield
        except Diverged as error:
            lr = config.method.fields.get("lr")
            advice = ""
            if isinstance(lr, float):
                advice = f", such as --set method.lr={min(lr / 10, USUAL_LR):g}"
            saved = f"the checkpoint of step {self.saved}" if self.saved else "no checkpoint yet"
            step = f"after step {cursor.position} " if "step" not in str(error) else ""
            message = f"{step}{error}{advice}; {self.target.path} holds {saved}"
            raise Diverged(message) from error

    @contextlib.contextmanager
    def _writing(self, path: Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            saved = f"the checkpoint of step {self.saved} is good" if self.saved else ""
            raise CannotWrite(
                f"cannot write {path}: {error.strerror or error}; "
                f"{saved or 'there is no checkpoint yet'}. When there is room, continue with "
                f"`{resume_command(self.target.path)}`"
            ) from None


def resume_command(
    directory: Path, data_dir: str | Path | None = None, method: str | None = None
) -> str:
    """Return the command that continues a run; a class of the user's own has to be named again.

    >>> resume_command(Path("runs/a/seed-0"), "my data", "own:Method")
    "deepccg resume runs/a/seed-0 --data-dir 'my data' --method own:Method"
    """
    words = ["deepccg", "resume", str(directory)]
    words += [] if data_dir is None else ["--data-dir", str(data_dir)]
    words += [] if method is None or method in METHODS else ["--method", method]
    return shlex.join(words)
