"""Whatever lies in the cache, a process ends well: its library is whole and ours, or not loaded."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from killing import Forks, Outcome
from PIL import Image

from deepccg.kernel_build import COMPILERS, file_name

has_compiler = any(map(shutil.which, COMPILERS))
pytestmark = pytest.mark.skipif(not has_compiler, reason="no C++ compiler was found")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")

ASK = "from deepccg.gaussian import kernels; print(kernels.unavailable_reason())"
LEARN = """
import numpy as np
from deepccg import DeepCCGClassifier
x = np.random.default_rng(0).normal(size=(20, 4))
print(DeepCCGClassifier(random_state=0).partial_fit(x, np.arange(20) % 2).predict(x).shape)
"""
EVIL = """
#include <cstdlib>
#include <fstream>
__attribute__((constructor)) static void run() { std::ofstream(std::getenv("MARK")) << "this ran"; }
"""


Start = Callable[..., Outcome]


@pytest.fixture(scope="module")
def start(forks: Forks) -> Start:
    """Runs a program in a process of its own; only planted code would write the file ``MARK``."""

    def call(cache: Path, program: list[str] | str, **environment: str) -> Outcome:
        own = {"DEEPCCG_CACHE": str(cache), "MARK": str(cache.parent / "mark")}
        place = str(cache.parent)
        done = forks(program, place, environment=dict(os.environ) | own | environment)
        assert not (cache.parent / "mark").exists()
        return done

    return call


@pytest.fixture(scope="module")
def built(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the real library."""
    cache = tmp_path_factory.mktemp("built") / "cache"
    assert start(cache, ASK).out == "None\n"
    return cache


@pytest.fixture
def library(built: Path, tmp_path: Path) -> Path:
    """The library in a copy of that cache."""
    shutil.copytree(built, tmp_path / "cache")
    (library,) = (tmp_path / "cache" / "kernels").iterdir()
    return library


def truncate_to(size: int) -> Callable[[Path], None]:
    return lambda library: os.truncate(library, size)


def flip_a_bit(library: Path) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


DAMAGES = {
    "4096 bytes": truncate_to(4096),
    "a bit": flip_a_bit,
}


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_a_damaged_library_is_compiled_again(
    start: Start, library: Path, damage: Callable[[Path], None]
) -> None:
    whole = library.read_bytes()
    damage(library)
    done = start(library.parents[1], ASK)
    assert (done.status, done.out, done.err) == (0, "None\n", "")
    assert library.read_bytes() == whole
    assert list(library.parent.iterdir()) == [library]


@pytest.fixture
def planted(library: Path, tmp_path: Path) -> Path:
    """Code of somebody else under a name that would be loaded."""
    source, evil = tmp_path / "evil.cpp", tmp_path / "evil.so"
    source.write_text(EVIL)
    compiler = next(filter(None, map(shutil.which, COMPILERS)))
    subprocess.run([compiler, "-shared", "-fPIC", "-o", evil, source], check=True)
    own = library.with_name(file_name(library.stem.rpartition("-")[0], evil.read_bytes()))
    library.unlink()
    return Path(shutil.move(evil, own))


def give_away(path: Path) -> None:
    os.chown(path, 54321, 54321)


def open_to_all(path: Path) -> None:
    path.chmod(0o777)


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize(
    ("change", "above"),
    [(give_away, 0), (give_away, 1), (open_to_all, 0), (open_to_all, 1), (open_to_all, 2)],
)
def test_code_that_may_be_anothers_is_not_loaded_and_one_line_says_so(
    start: Start, planted: Path, above: int, change: Callable[[Path], None]
) -> None:
    place = [planted, *planted.parents][above]
    change(place)
    done = start(planted.parents[1], LEARN)
    assert (done.status, done.out) == (0, "(20,)\n")
    (warning, _source) = done.err.splitlines()  # Python adds the line of code
    assert f"UserWarning: compiled kernels are not used, as {place} " in warning
    assert warning.endswith("set DEEPCCG_CACHE to a directory of your own")
    assert planted.exists()


@pytest.mark.slow
@needs_root
def test_a_run_says_it_in_one_line(start: Start, tmp_path: Path) -> None:
    place = tmp_path / "cache" / "kernels"
    place.mkdir(parents=True)
    place.chmod(0o777)
    for i in range(6):
        file = tmp_path / "pets" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (40 * i, 0, 0)).save(file)
    arguments = ["run", "--dataset", str(tmp_path / "pets"), "--method", "sgd"]
    arguments += ["--out", str(tmp_path / "runs")]
    done = start(place.parent, arguments)
    assert done.status == 0
    (warning,) = [line for line in done.err.splitlines() if not line.startswith("decoding")]
    assert warning.startswith(f"Warning: compiled kernels are not used, as {place} can be written")


@pytest.mark.slow
def test_a_kill_while_compiling_leaves_nothing_behind(start: Start, tmp_path: Path) -> None:
    kernels = tmp_path / "cache" / "kernels"
    environment = os.environ | {"DEEPCCG_CACHE": str(kernels.parent)}
    arguments = [sys.executable, "-c", ASK]
    process = subprocess.Popen(arguments, env=environment, start_new_session=True)
    while not list(kernels.glob(".*.tmp/*")):  # the compiler has begun to write
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert list(kernels.glob(".*.tmp/*"))
    assert not list(kernels.glob("*.so"))
    assert start(kernels.parent, ASK).out == "None\n"
    (library,) = kernels.iterdir()
    assert library.suffix == ".so"


def test_a_compiler_may_say_anything(start: Start, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"#!/bin/sh\nprintf '\\377\\376\\n' >&2\nprintf '\\200'\nexit 1\n")
    broken.chmod(0o755)
    noisy = f"import logging; logging.basicConfig(level=logging.DEBUG)\n{ASK}"
    done = start(tmp_path / "cache", noisy, CXX=str(broken))
    assert (done.status, done.out) == (0, "broken could not compile the kernels\n")
