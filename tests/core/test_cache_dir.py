"""Where the cache is, whose code in it is trusted, and what killed processes leave there."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from deepccg.atomic import temporary_directory
from deepccg.core import cache_dir
from deepccg.core.cache_dir import (
    default_cache_dir,
    make_directory,
    untrusted_reason,
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
SOMEBODY = 54321


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A file in two directories, all of them ours."""
    make_directory(tmp_path / "cache" / "kernels")
    file = tmp_path / "cache" / "kernels" / "library.so"
    file.touch(mode=0o644)
    return file


def test_what_only_we_can_write_is_trusted(library: Path) -> None:
    assert untrusted_reason(library) is None
    for place in (library, library.parent, library.parents[1]):
        place.chmod(0o755)
    assert untrusted_reason(library) is None


@pytest.mark.parametrize("above", [0, 1, 2])
@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_what_others_can_write_is_not(library: Path, above: int, mode: int) -> None:
    place = [library, *library.parents][above]
    place.chmod(mode)
    reason = f"{place} can be written by others: run chmod go-w {place}, or set DEEPCCG_CACHE"
    assert (untrusted_reason(library) or "").startswith(reason)


@needs_root
@pytest.mark.parametrize("above", [0, 1, 2])
def test_what_belongs_to_another_is_not(library: Path, above: int) -> None:
    place = [library, *library.parents][above]
    os.chown(place, SOMEBODY, -1)
    reason = f"{place} belongs to another user ({SOMEBODY}): remove it, or set DEEPCCG_CACHE"
    assert (untrusted_reason(library) or "").startswith(reason)


@needs_root
def test_a_group_counts_unless_only_the_owner_is_in_it(library: Path) -> None:
    library.parent.chmod(0o775)
    os.chown(library.parent, 0, 0)  # root's own
    assert untrusted_reason(library) is None
    os.chown(library.parent, 0, SOMEBODY)
    assert "can be written by others" in (untrusted_reason(library) or "")


def test_a_directory_like_tmp_is_fine_above_and_only_there(library: Path) -> None:
    library.parents[1].chmod(0o1777)
    assert untrusted_reason(library) is None
    assert untrusted_reason(library.parents[1]) is not None


def test_above_the_home_nobody_looks(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library.parents[1].chmod(0o777)
    monkeypatch.setenv("HOME", str(library.parent))
    assert untrusted_reason(library) is None
    library.parent.chmod(0o777)
    assert untrusted_reason(library) is not None


def test_directories_are_made_for_us_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        make_directory(tmp_path / "a" / "b")
    finally:
        os.umask(before)
    for place in (tmp_path / "a", tmp_path / "a" / "b"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o755
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            make_directory(place)


def test_a_temporary_directory_in_use_is_left_alone(tmp_path: Path) -> None:
    with temporary_directory(tmp_path / "x") as first:
        (first / "file").touch()
        with temporary_directory(tmp_path / "x") as second:
            assert first != second
            assert (first / "file").exists()
        assert list(tmp_path.iterdir()) == [first]
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from deepccg.atomic import temporary_directory\n"
        "with temporary_directory(Path(sys.argv[1], 'x')) as scratch:\n"
        "    (scratch / 'half').write_bytes(b'written')\n"
        "    print('ready', flush=True); time.sleep(600)\n"
    )
    arguments = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with temporary_directory(tmp_path / "x"):
            assert len(list(tmp_path.iterdir())) == 2  # it is alive
        process.send_signal(signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    assert (left / "half").exists()
    with temporary_directory(tmp_path / "x") as scratch:
        assert list(tmp_path.iterdir()) == [scratch]


@pytest.mark.slow
def test_two_that_begin_at_once_do_not_remove_each_other(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from deepccg.atomic import temporary_directory\n"
        "time.sleep(max(0.0, float(sys.argv[2]) - time.time()))\n"
        "for _ in range(300):\n"
        "    with temporary_directory(Path(sys.argv[1], 'x')) as scratch:\n"
        "        (scratch / 'file').write_bytes(b'mine')\n"
        "        assert (scratch / 'file').read_bytes() == b'mine'\n"
    )
    start = str(time.time() + 8)
    arguments = [sys.executable, "-c", program, str(tmp_path), start]
    processes = [subprocess.Popen(arguments) for _ in range(3)]
    assert [process.wait() for process in processes] == [0, 0, 0]
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_made_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEEPCCG_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    (tmp_path / "file").touch(mode=0o444)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))  # not even root makes a directory in it
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    cache_dir._temporary_cache.cache_clear()
    place = default_cache_dir()
    cache_dir._temporary_cache.cache_clear()
    assert place == tmp_path / f"deepccg-{os.geteuid()}"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_dir() == tmp_path / "deepccg"
