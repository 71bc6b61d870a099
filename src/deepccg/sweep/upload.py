"""Copying finished runs to wherever fsspec can write: a bucket, another machine, a folder."""

from dataclasses import replace
from pathlib import Path

from fsspec.core import url_to_fs

from deepccg.core import InputError
from deepccg.records import RunDirectory, is_temporary
from deepccg.sweep.job import Answer


class Upload:
    """Copies runs to a URL, each whole or not at all.

    A directory is a run only if it has a ``config.toml``, so that file goes last, under another
    name first. Whoever looks in between, or after this process was killed, finds no run there; the
    next time the files are copied again.

    Args:
        url: Where the run directories go, for example ``s3://bucket/runs``.
        out: The directory that runs are in here; below the URL they have the same places.
    """

    def __init__(self, url: str, out: Path) -> None:
        self._url = url
        self._out = out.absolute()
        try:
            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError, OSError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"cannot upload to {url!r}: {reason}") from None

    def after(self, answer: Answer, directory: Path) -> Answer:
        """Copy a run that is finished; if that fails the run has failed, and may be tried again."""
        if answer.status not in ("finished", "already"):
            return answer
        try:
            self.copy(directory)
        except OSError as error:
            reason = " ".join(str(error).split())
            told = f"the run is finished, but could not be copied to {self._url}: {reason}"
            return replace(answer, status="failed", error=told, again=True)
        return answer

    def copy(self, directory: Path) -> bool:
        """Copy a run; returns whether it was not there yet."""
        target = RunDirectory(directory)
        place = f"{self._root.rstrip('/')}/{directory.absolute().relative_to(self._out).as_posix()}"
        last = f"{place}/{target.config_path.name}"
        if self._files.exists(last):
            return False
        left_behind = {target.config_path, target.previous_path, target.lock_path}
        self._files.makedirs(place, exist_ok=True)
        for file in sorted(directory.iterdir()):
            if file.is_file() and file not in left_behind and not is_temporary(file):
                self._files.put_file(str(file), f"{place}/{file.name}")
        partial = f"{place}/.{target.config_path.name}.part"
        self._files.put_file(str(target.config_path), partial)
        self._files.mv(partial, last)
        return True
