"""Archives: finished runs as the lines of one file; and finding runs, archived or not.

A new run adds one line, a JSON object: ``run`` is the run's name, ``config``, ``environment``,
``audit`` and ``timing`` are the contents of its files (``null`` without the file), ``records`` is
the list of its records. Checkpoints, logs and trackers' names are not archived.

The file's ending says how the lines are kept: ``.jsonl`` as text, ``.jsonl.gz`` compressed,
``.parquet`` in the column ``line`` of a table whose other columns are settings and scores.
"""

import gzip
import importlib.util
import io
import json
import os
import zlib
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path, PureWindowsPath
from typing import Any, cast

import tomli_w

from deepccg.atomic import naming, temporary_directory, write_atomically
from deepccg.records.directory import RunDirectory, find_run_directories
from deepccg.records.files import check_regular, read_regular
from deepccg.records.metrics import summary
from deepccg.records.recorded_run import PARTS, RecordedRun
from deepccg.records.schema import Record, RecordError, record_from_json, record_line
from deepccg.records.settings import flatten

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
LARGEST = 1 << 32  # bytes of an archive, also unpacked; a run has some 100,000
_KEYS = ("run", "config", *PARTS, "records")


class ArchivedRun(RecordedRun):
    """A run that is a line of an archive; lines are without their ends and counted from 1."""

    def __init__(self, archive: Path, line: bytes, number: int) -> None:
        self._archive, self._number = archive, number
        self._content = _parse(line)
        self.name: str = self._content["run"]
        self.path = archive / self.name
        self.line = line

    def config(self) -> dict[str, Any]:
        """Return the run's configuration as plain values."""
        return dict(self._content["config"])

    def records(self) -> list[Record]:
        """Return all records, in the order they were written."""
        return list(self._records)

    @cached_property
    def _records(self) -> list[Record]:
        try:
            return [record_from_json(record) for record in self._content["records"]]
        except RecordError as error:
            raise RecordError(f"{self._archive}, line {self._number}: {error}") from error

    def part(self, name: str) -> dict[str, Any] | None:
        """Return the content of one of ``PARTS``; ``None`` if the run has none."""
        return cast(dict[str, Any] | None, self._content[name])

    @property
    def recency(self) -> tuple[int, int]:
        """Of one archive, the last line is the newest."""
        return self._archive.stat().st_mtime_ns, self._number


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[RecordedRun]:
    """Return every run at or below directories and in archives, each once, sorted by path."""
    found: dict[Path, RecordedRun] = {}
    for path in map(Path, paths):
        if path.is_dir():
            found.update({run.path: run for run in find_run_directories(path)})
        elif is_archive(path):
            found.update({run.path: run for run in read_archive(path)})
        else:
            endings = ", ".join(ENDINGS)
            raise RecordError(f"{path} is not a directory of runs, nor an archive ({endings})")
    return [found[path] for path in sorted(found)]


def is_archive(path: str | os.PathLike[str]) -> bool:
    """Whether the name is that of an archive."""
    return Path(path).name.endswith(ENDINGS)


def read_archive(path: str | os.PathLike[str]) -> list[ArchivedRun]:
    """Return the runs of an archive, in the order of its lines; each name may be there once."""
    archive = Path(path)
    runs: dict[str, ArchivedRun] = {}
    for number, line in enumerate(_lines(archive), start=1):
        try:
            run = ArchivedRun(archive, line, number)
            if run.name in runs:
                raise RecordError(f"the run {run.name} is there already")
        except ValueError as error:
            raise RecordError(f"{archive}, line {number}: {error}") from error
        runs[run.name] = run
    return list(runs.values())


def append_to_archive(path: str | os.PathLike[str], runs: Iterable[RecordedRun]) -> int:
    """Add runs to the end of an archive, all of them or none; returns how many were new.

    A run that is there already with the same content is not added again.

    Raises:
        RecordError: If the archive has another run of the same name.
    """
    archive = Path(path)
    _require_pyarrow(archive)
    there = {run.name: run.line for run in read_archive(archive)} if archive.exists() else {}
    before = len(there)
    for run in runs:
        name, line = run_name(run), _line(run)
        if there.setdefault(name, line) != line:
            raise RecordError(
                f"{archive}: there is another run {name}; archive {run.path} elsewhere"
            )
    new = list(there.values())[before:]
    if new:
        write_atomically(archive, _extended(archive, list(there.values()), new))
    return len(new)


def _line(run: RecordedRun) -> bytes:
    """Return the run as a line of an archive, without the line's end."""
    if isinstance(run, ArchivedRun):
        return run.line
    content: dict[str, Any] = {"run": run_name(run), "config": run.config()}
    content |= {name: run.part(name) for name in PARTS}
    try:
        head = json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError) as error:  # dates, or numbers that JSON does not have
        raise RecordError(f"{run.path} cannot be archived: {error}") from error
    return head[:-1] + b',"records":[' + b",".join(map(record_line, run.records())) + b"]}"


def run_name(run: RecordedRun) -> str:
    """Return a run's name in archives; for a directory the last two parts of its path.

    >>> run_name(RunDirectory(Path("/data/runs/digits-er/seed-0")))
    'digits-er/seed-0'
    """
    return run.name if isinstance(run, ArchivedRun) else "/".join(run.path.resolve().parts[-2:])


def write_directories(runs: Sequence[RecordedRun], directory: str | os.PathLike[str]) -> None:
    """Write each run as a run directory below ``directory``; none of them may be there yet.

    Each appears whole; if the disk is full, those before it stay.
    """
    targets = {run_name(run): run for run in runs}
    if len(targets) < len(runs):
        raise RecordError("two of these runs have the same name: export them one by one")
    for name in targets:
        if (there := Path(directory) / name).exists():
            raise RecordError(f"{there} is there already: give another directory")
    for name, run in targets.items():
        place = Path(directory) / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with naming(place), temporary_directory(place) as written:
            _write_run(run, RunDirectory(written))
            written.rename(place)


def _write_run(run: RecordedRun, target: RunDirectory) -> None:
    records = b"".join(record_line(record) + b"\n" for record in run.records())
    write_atomically(target.records_path, records)
    for part in PARTS:
        if (content := run.part(part)) is not None:
            text = json.dumps(content, indent=2) + "\n"
            write_atomically(target.path / f"{part}.json", text.encode())
    write_atomically(target.config_path, tomli_w.dumps(run.config()).encode())


def _parse(line: bytes) -> dict[str, Any]:
    """Return the content of a line, complete and of the right types; else a ``ValueError``."""
    try:
        content = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(content, dict) or content.keys() != set(_KEYS):
        raise RecordError(f"a line is an object with the keys {', '.join(_KEYS)}")
    name = content["run"]
    if not isinstance(name, str) or not _is_relative(name):
        raise RecordError(f"a run's name is a relative path, not {name!r:.80}")
    if not isinstance(content["config"], dict) or not isinstance(content["records"], list):
        raise RecordError("config must be an object and records a list")
    for key in PARTS:
        if not isinstance(content[key], dict | None):
            raise RecordError(f"{key} must be an object or null")
    return content


def _is_relative(name: str) -> bool:
    """Whether a run of this name would be written below the directory that a user gives."""
    plain = name.isprintable() and "\\" not in name and not PureWindowsPath(name).drive
    return plain and set(name.split("/")).isdisjoint(("", ".", ".."))


def _require_pyarrow(archive: Path) -> None:
    if archive.suffix == ".parquet" and importlib.util.find_spec("pyarrow") is None:
        raise RecordError(f"{archive} needs pyarrow: pip install 'deepccg[hub]', or use .jsonl")


def _lines(archive: Path) -> list[bytes]:
    """Return the lines without their ends."""
    _require_pyarrow(archive)
    try:
        if archive.suffix == ".parquet":
            return _parquet_lines(archive)
        content = read_regular(archive, LARGEST, links=True)
        text = _unpacked(archive, content) if archive.suffix == ".gz" else content
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise RecordError(f"cannot read {archive}: {reason}") from error
    return text.removesuffix(b"\n").split(b"\n") if text else []


def _unpacked(archive: Path, content: bytes) -> bytes:
    """Return the text of a gzip file; a few bytes of it may claim to be any number."""
    text = bytearray()
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while part := file.read(1 << 20):
            text += part
            if len(text) > LARGEST:
                raise RecordError(f"{archive} unpacks to more than {LARGEST:,} bytes")
    return bytes(text)


def _extended(archive: Path, lines: Sequence[bytes], new: Sequence[bytes]) -> bytes:
    """Return the content of the archive with the new lines; what was there stays byte for byte."""
    if archive.suffix == ".parquet":
        return _parquet(archive, lines)
    before = read_regular(archive, LARGEST, links=True) if archive.exists() else b""
    added = b"".join(line + b"\n" for line in new)
    if archive.suffix == ".gz":  # members of a gzip file stand one after the other
        return before + gzip.compress(added, mtime=0)
    return before + (b"" if not before or before.endswith(b"\n") else b"\n") + added


def _parquet(archive: Path, lines: Sequence[bytes]) -> bytes:
    """Return all runs as a table, for pandas for example: settings, scores and the lines."""
    import pyarrow
    import pyarrow.parquet

    rows = [_row(ArchivedRun(archive, line, i)) for i, line in enumerate(lines, start=1)]
    names = dict.fromkeys(name for row in rows for name in row if name != "line")
    columns = {name: _column([row.get(name) for row in rows]) for name in (*names, "line")}
    file = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression="zstd")
    return file.getvalue()


def _row(run: ArchivedRun) -> dict[str, Any]:
    evaluations, timing = run.evaluations(), run.timing()
    return {
        "run": run.name,
        **flatten(run.config()),
        **summary(evaluations),
        "steps": evaluations[-1].step if evaluations else None,
        "learning_seconds": timing.learning_seconds if timing else None,
        "line": run.line.decode(),
    }


def _column(values: list[Any]) -> Any:
    """Return an Arrow column; values of several types become JSON."""
    import pyarrow

    try:
        return pyarrow.array(values)
    except pyarrow.ArrowException:
        return pyarrow.array([None if value is None else json.dumps(value) for value in values])


def _parquet_lines(archive: Path) -> list[bytes]:
    import pyarrow
    import pyarrow.parquet

    check_regular(archive, largest=LARGEST, links=True)
    try:
        column = pyarrow.parquet.read_table(archive, columns=["line"]).column("line")
        return [line.encode() for line in column.to_pylist()]
    except (pyarrow.ArrowException, KeyError, ValueError, AttributeError) as error:
        first = str(error).partition("\n")[0]
        raise RecordError(f"{archive} is not an archive of runs: {first}") from error
