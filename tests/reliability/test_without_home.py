"""A user without home, entry in the list of users, or right to write at home: all commands work."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PIL import Image

import deepccg
from deepccg.kernel_build import COMPILERS

NOBODY = 54321  # in no list of users
SOURCE = Path(deepccg.__file__).parents[1]
# They may read all files, as the interpreter may lie in another's home, and write none.
BECOME = (
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    "--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search",
)  # fmt: skip
CLI = "import sys; from deepccg.cli import main; sys.argv[0] = 'deepccg'; main()"
LEARN = """
import numpy as np
from deepccg import DeepCCGClassifier
from deepccg.core import default_cache_dir
from deepccg.gaussian import kernels
x = np.random.default_rng(0).normal(size=(20, 4))
print(DeepCCGClassifier(random_state=0).partial_fit(x, np.arange(20) % 2).predict(x).shape)
print(kernels.unavailable_reason(), default_cache_dir())
"""
BOTH = (LEARN + CLI, "run", "--dataset", "./pets", "--method", "sgd")


def _become() -> bool:
    tried = subprocess.run([*BECOME, "true"]) if shutil.which("setpriv") else None
    return os.geteuid() == 0 and tried is not None and tried.returncode == 0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not _become(), reason="needs root, and setpriv to become somebody else"),
]

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody can reach and write, like ``/tmp``; in it, images to learn."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o1777)
        for i in range(8):
            file = Path(name) / "pets" / "ab"[i % 2] / f"{i}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (8, 8), (30 * i, 0, 0)).save(file)
        yield Path(name).resolve()


@pytest.fixture
def run(place: Path) -> Run:
    """Runs a program as nobody, with no environment but what is given."""

    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "PYTHONPATH": str(SOURCE),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(place),
        }
        done = subprocess.run(
            [*BECOME, sys.executable, "-c", *arguments],
            cwd=place,
            env=environment | more,
            capture_output=True,
            text=True,
        )
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == 0, done.stderr
        return done

    return call


def test_without_home_and_name(run: Run, place: Path) -> None:
    own = place / f"deepccg-{NOBODY}"
    assert run(*BOTH).stdout.splitlines()[0] == "(20,)"
    assert (own / "pets").is_dir()
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    if any(map(shutil.which, COMPILERS)):
        times = {file: file.stat().st_mtime_ns for file in (own / "kernels").iterdir()}
        assert len(times) == 1
        assert run(LEARN).stdout.splitlines()[1] == f"None {own}"
        assert {file: file.stat().st_mtime_ns for file in (own / "kernels").iterdir()} == times
    assert f"Cache: {own}" in run(CLI, "data", COLUMNS="200").stdout


def test_with_a_home_that_cannot_be_written(run: Run, place: Path) -> None:
    home = place / "home"
    home.mkdir(mode=0o755)
    assert run(*BOTH, HOME=str(home)).stdout.startswith("(20,)")
    assert (place / f"deepccg-{NOBODY}" / "pets").is_dir()
    assert list(home.iterdir()) == []


def test_where_somebody_has_taken_the_name(run: Run, place: Path) -> None:
    taken = place / f"deepccg-{NOBODY}"
    taken.mkdir()
    taken.chmod(0o777)
    assert run(*BOTH).stdout.startswith("(20,)")
    assert list(taken.iterdir()) == []
    assert not [left for left in place.glob("deepccg-*") if left != taken]


def test_where_nothing_can_be_written(run: Run, place: Path) -> None:
    closed = place / "closed"
    closed.mkdir(mode=0o755)
    program = (  # torch itself needs one to be imported
        "import tempfile, torch; tempfile.tempdir = None\n"
        f"tempfile._candidate_tempdir_list = lambda: [{str(closed)!r}]\n"
    )
    first, second = run(program + LEARN).stdout.splitlines()
    assert first == "(20,)"
    assert "the compiled kernels cannot be kept" in second or "no C++ compiler" in second
    assert "Cache: /dev/null/deepccg" in run(program + CLI, "data", COLUMNS="200").stdout
