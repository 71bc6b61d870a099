"""Finding runs: in directories and in archives."""

import os
from collections.abc import Iterable
from pathlib import Path

from deepccg.records.archive import ENDINGS, is_archive, read_archive
from deepccg.records.directory import find_run_directories
from deepccg.records.run import RecordedRun
from deepccg.records.validation import RecordError


def find_runs(paths: Iterable[str | os.PathLike[str]]) -> list[RecordedRun]:
    """Every run at or below directories and in archives, each once, sorted by path."""
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
