"""Copying finished runs to any file system of fsspec: a bucket, another machine, a folder."""

from dataclasses import replace
from pathlib import Path

from fsspec.core import url_to_fs

from deepccg.core import InputError
from deepccg.records import RunDirectory, is_temporary
from deepccg.sweep.job import JobResult


class Upload:
    """Copies runs to a URL, each whole or not at all.

    A directory is a run only if it has a ``config.toml``, so that file is copied last, and under a
    temporary name first. Until then, or if this process is killed, readers find no run there; the
    next time the files are copied again. Copies have the same paths below the URL, for example
    ``s3://bucket/runs``, as the runs have below ``out``.
    """

    def __init__(self, url: str, out: Path) -> None:
        self._url = url
        self._out = out.absolute()
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            raise InputError(f"cannot upload to {url!r}: {' '.join(str(error).split())}") from None

    def after(self, result: JobResult, directory: Path) -> JobResult:
        """Copy a finished run; returns the result, or a retryable failure if copying failed."""
        if result.status not in ("finished", "already"):
            return result
        try:
            self.copy(directory)
        except OSError as error:
            reason = " ".join(str(error).split())
            message = f"the run is finished, but could not be copied to {self._url}: {reason}"
            return replace(result, status="failed", error=message, retryable=True)
        return result

    def copy(self, directory: Path) -> bool:
        """Copy a run unless it is there; returns whether it was copied."""
        run, place = RunDirectory(directory), directory.absolute().relative_to(self._out)
        target = f"{self._root.rstrip('/')}/{place.as_posix()}"
        last = f"{target}/{run.config_path.name}"
        if self._files.exists(last):
            return False
        excluded = {run.config_path, run.previous_path, run.lock_path}
        self._files.makedirs(target, exist_ok=True)
        for file in sorted(directory.iterdir()):
            regular = file.is_file() and not file.is_symlink()
            if regular and file not in excluded and not is_temporary(file):
                self._files.put_file(str(file), f"{target}/{file.name}")
        partial = f"{target}/.{run.config_path.name}.part"
        self._files.put_file(str(run.config_path), partial)
        self._files.mv(partial, last)
        return True
