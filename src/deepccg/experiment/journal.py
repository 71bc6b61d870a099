"""What a run keeps on disk while it learns."""

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from deepccg.core import CannotWrite, Learner
from deepccg.experiment.checkpoint import save_checkpoint
from deepccg.experiment.health import check_state
from deepccg.methods import METHODS
from deepccg.records import Record, RunDirectory, append_record, write_atomically


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
            save_checkpoint(path, state, about, previous)
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
