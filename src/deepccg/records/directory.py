"""Run directories: reading and extending ``records.jsonl``, and finding them.

A record is one line, written whole. If a run dies while writing, the last line may be torn: it
has no line end. Readers ignore it and the next append removes it; a broken line anywhere else is
an error.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepccg.atomic import write_atomically
from deepccg.records.files import (
    append_durably,
    check_regular,
    open_regular,
    read_json_object,
    read_recorded_toml,
    read_regular,
)
from deepccg.records.recorded_run import RecordedRun
from deepccg.records.schema import Record, RecordError, record_from_json, record_line

if os.name == "posix":
    import fcntl

_LARGEST_RECORDS = 1 << 30  # bytes that are read; a run of the paper's size has some 100,000


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """Return all records of a file, in the order they were written; a torn last line is ignored."""
    return [record for _, record in _lines(Path(path))]


def append_record(path: str | os.PathLike[str], record: Record) -> None:
    """Add one record at the end of the file, durably, after removing a torn last line."""
    line = record_line(record) + b"\n"
    target = Path(path)
    if _lacks_line_end(target):
        write_atomically(target, b"".join(kept for kept, _ in _lines(target)))
    append_durably(target, line)


def rewind_records(path: str | os.PathLike[str], step: int) -> int:
    """Drop the records of steps after ``step``: a run that resumes from there writes them again.

    Returns how many records are left. A file that ends there already is not touched.
    """
    target = Path(path)
    check_regular(target)
    if not target.exists():
        return 0
    kept = [line for line, record in _lines(target) if record.step <= step]
    if read_regular(target, _LARGEST_RECORDS) != b"".join(kept):
        write_atomically(target, b"".join(kept))
    return len(kept)


class _FileIn:
    """A file of a run directory: ``run.config_path`` is the path of ``config.toml`` in it."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, run: "RunDirectory", _: object = None) -> Path:
        return run.path / self._name


@dataclass(frozen=True)
class RunDirectory(RecordedRun):
    """The files of one run. Nothing is read until it is asked for, and regular files only."""

    path: Path

    config_path = _FileIn("config.toml")  # what was run
    records_path = _FileIn("records.jsonl")  # what was measured
    checkpoint_path = _FileIn("checkpoint.safetensors")  # what it learned, to continue from
    previous_path = _FileIn("previous.safetensors")  # the checkpoint before, should that be damaged
    lock_path = _FileIn(".lock")  # held by the process that is writing here
    audit_path = _FileIn("audit.json")  # how the run kept to its protocol
    environment_path = _FileIn("environment.json")  # what it ran on
    timing_path = _FileIn("timing.json")  # how long it took
    log_path = _FileIn("log.txt")  # what it printed in a sweep, and what went wrong; if anything
    tracking_path = _FileIn("tracking.json")  # its name for experiment trackers; if one follows it

    def config(self) -> dict[str, Any]:
        """Return the run's configuration as plain values."""
        return read_recorded_toml(self.config_path)

    def records(self) -> list[Record]:
        """Return all records so far; none if the run has not written any."""
        check_regular(self.records_path)
        return read_records(self.records_path) if self.records_path.exists() else []

    def part(self, name: str) -> dict[str, Any] | None:
        """Return the content of ``NAME.json``; ``None`` if it is not there, or damaged."""
        check_regular(self.path / f"{name}.json")
        return read_json_object(self.path / f"{name}.json")

    def check(self) -> None:
        """Refuse a directory with something other than a regular file in a file's place."""
        for name, value in vars(RunDirectory).items():
            if isinstance(value, _FileIn):
                check_regular(getattr(self, name))

    @property
    def stamp(self) -> tuple[object, ...]:
        """Another one as soon as a file that holds results changed, or the run began or stopped."""
        paths = (
            self.config_path,
            self.records_path,
            self.checkpoint_path,
            self.audit_path,
            self.environment_path,
            self.timing_path,
        )
        return self.running, *map(file_stamp, paths)

    @property
    def running(self) -> bool:
        """Whether a process is writing here: whether it holds the lock, which goes with it.

        Where locks are not those of POSIX, the lock's file is asked for alone.
        """
        try:
            with open_regular(self.lock_path) as file:
                if os.name != "posix":
                    return True
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # for a moment: a run waits longer
                return False
        except BlockingIOError:
            return True
        except (OSError, RecordError):  # no file, or nothing that could be a lock
            return False

    @property
    def recency(self) -> tuple[int, int]:
        """When the last record was written."""
        return self.records_path.stat().st_mtime_ns, 0


def file_stamp(path: Path) -> tuple[int, int] | None:
    """Return size and time of change of a file; ``None`` if it is not there."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_size, status.st_mtime_ns


def find_run_directories(path: str | os.PathLike[str]) -> list[RunDirectory]:
    """Return every directory at or below ``path`` that holds a ``config.toml``, sorted."""
    if not Path(path).is_dir():
        raise RecordError(f"{path} is not a directory: give a run or a directory of runs")
    return [
        RunDirectory(each) for each in sorted(c.parent for c in Path(path).rglob("config.toml"))
    ]


def _lines(path: Path) -> Iterator[tuple[bytes, Record]]:
    """Yield each line, with its line end, and the record it holds."""
    try:
        content = read_regular(path, _LARGEST_RECORDS)
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    *complete, tail = content.split(b"\n")
    for number, line in enumerate(complete, start=1):
        try:
            yield line + b"\n", record_from_json(line)
        except ValueError as error:
            raise RecordError(f"{path}, line {number}: {error}") from error
    with contextlib.suppress(ValueError):  # empty, or torn
        yield tail + b"\n", record_from_json(tail)


def _lacks_line_end(path: Path) -> bool:
    try:
        file = open_regular(path)
    except FileNotFoundError:
        return False
    with file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        return file.read() not in (b"", b"\n")
