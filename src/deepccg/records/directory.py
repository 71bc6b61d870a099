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

from deepccg.records.files import read_json_object, read_toml, write_atomically, write_durably
from deepccg.records.run import RecordedRun
from deepccg.records.schema import Record, record_from_line, record_line
from deepccg.records.validation import RecordError


def read_records(path: str | os.PathLike[str]) -> list[Record]:
    """All records of a file, in the order they were written; a torn last line is ignored."""
    return [record for _, record in _lines(Path(path))]


def append_record(path: str | os.PathLike[str], record: Record) -> None:
    """Add one record at the end of the file, durably, after removing a torn last line."""
    line = record_line(record) + b"\n"
    target = Path(path)
    if target.exists() and not _ends_in_newline(target):
        write_atomically(target, b"".join(kept for kept, _ in _lines(target)))
    with target.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            write_durably(file, line)
        except OSError:  # a full disk may have taken a part of the line
            with contextlib.suppress(OSError):
                file.truncate(size)
            raise


def rewind_records(path: str | os.PathLike[str], step: int) -> int:
    """Drop the records of steps after ``step``: a run that resumes from there writes them again.

    Returns how many records are left. A file that ends there already is not touched.
    """
    target = Path(path)
    if not target.exists():
        return 0
    kept = [line for line, record in _lines(target) if record.step <= step]
    if target.read_bytes() != b"".join(kept):
        write_atomically(target, b"".join(kept))
    return len(kept)


@dataclass(frozen=True)
class RunDirectory(RecordedRun):
    """The files of one run. Nothing is read until it is asked for."""

    path: Path

    @property
    def config_path(self) -> Path:
        """What was run."""
        return self.path / "config.toml"

    @property
    def records_path(self) -> Path:
        """What was measured."""
        return self.path / "records.jsonl"

    @property
    def checkpoint_path(self) -> Path:
        """Where the run continues from, or what it learned."""
        return self.path / "checkpoint.safetensors"

    @property
    def previous_path(self) -> Path:
        """The checkpoint before, should the newest be damaged."""
        return self.path / "previous.safetensors"

    @property
    def lock_path(self) -> Path:
        """Held by the process that is writing here."""
        return self.path / ".lock"

    @property
    def audit_path(self) -> Path:
        """How the run kept to its protocol."""
        return self.path / "audit.json"

    @property
    def environment_path(self) -> Path:
        """What it ran on."""
        return self.path / "environment.json"

    @property
    def timing_path(self) -> Path:
        """How long it took."""
        return self.path / "timing.json"

    @property
    def log_path(self) -> Path:
        """What was printed and went wrong while a sweep did the run; only if something was."""
        return self.path / "log.txt"

    @property
    def tracking_path(self) -> Path:
        """The run's name for experiment trackers; only if one follows it."""
        return self.path / "tracking.json"

    def config(self) -> dict[str, Any]:
        """The run's configuration as plain values."""
        try:
            return read_toml(self.config_path)
        except OSError as error:
            raise RecordError(f"cannot read {self.config_path}: {error.strerror}") from error
        except ValueError as error:
            raise RecordError(f"{self.config_path} is not valid TOML: {error}") from error

    def records(self) -> list[Record]:
        """All records so far; none if the run has not written any."""
        return read_records(self.records_path) if self.records_path.exists() else []

    def part(self, name: str) -> dict[str, Any] | None:
        """The content of ``NAME.json``; ``None`` if it is not there, or damaged."""
        return read_json_object(self.path / f"{name}.json")

    @property
    def recency(self) -> tuple[int, int]:
        """When the last record was written."""
        return self.records_path.stat().st_mtime_ns, 0


def find_run_directories(path: str | os.PathLike[str]) -> list[RunDirectory]:
    """Every directory at or below ``path`` that holds a ``config.toml``, sorted."""
    if not Path(path).is_dir():
        raise RecordError(f"{path} is not a directory: give a run or a directory of runs")
    return [
        RunDirectory(each) for each in sorted(c.parent for c in Path(path).rglob("config.toml"))
    ]


def _lines(path: Path) -> Iterator[tuple[bytes, Record]]:
    """Each line, with its line end, and the record it holds."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    *complete, tail = content.split(b"\n")
    for number, line in enumerate(complete, start=1):
        try:
            yield line + b"\n", record_from_line(line)
        except ValueError as error:
            raise RecordError(f"{path}, line {number}: {error}") from error
    with contextlib.suppress(ValueError):  # empty, or torn
        yield tail + b"\n", record_from_line(tail)


def _ends_in_newline(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
