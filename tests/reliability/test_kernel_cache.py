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


def start(cache: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own; only planted code would write the file ``MARK``."""
    own = {"DEEPCCG_CACHE": str(cache), "MARK": str(cache.parent / "mark")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | own | environment,
        capture_output=True,
        text=True,
    )
    assert not (cache.parent / "mark").exists()
    return done


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with the real library."""
    cache = tmp_path_factory.mktemp("built") / "cache"
    assert start(cache, ASK).stdout == "None\n"
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
def test_a_damaged_library_is_compiled_again(library: Path, damage: Callable[[Path], None]) -> None:
    whole = library.read_bytes()
    damage(library)
    done = start(library.parents[1], ASK)
    assert (done.returncode, done.stdout, done.stderr) == (0, "None\n", "")
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
    planted: Path, above: int, change: Callable[[Path], None]
) -> None:
    place = [planted, *planted.parents][above]
    change(place)
    done = start(planted.parents[1], LEARN)
    assert (done.returncode, done.stdout) == (0, "(20,)\n")
    (warning, _source) = done.stderr.splitlines()  # Python adds the line of code
    assert f"UserWarning: compiled kernels are not used, as {place} " in warning
    assert warning.endswith("set DEEPCCG_CACHE to a directory of your own")
    assert planted.exists()


@pytest.mark.slow
@needs_root
def test_a_run_says_it_in_one_line(tmp_path: Path) -> None:
    place = tmp_path / "cache" / "kernels"
    place.mkdir(parents=True)
    place.chmod(0o777)
    for i in range(6):
        file = tmp_path / "pets" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (40 * i, 0, 0)).save(file)
    arguments = ["run", "--dataset", str(tmp_path / "pets"), "--method", "sgd"]
    arguments += ["--out", str(tmp_path / "runs")]
    program = f"import sys; from deepccg.cli import main; sys.argv[1:] = {arguments}; main()"
    done = start(place.parent, program)
    assert done.returncode == 0
    (warning,) = [line for line in done.stderr.splitlines() if not line.startswith("decoding")]
    assert warning.startswith(f"Warning: compiled kernels are not used, as {place} can be written")


@pytest.mark.slow
def test_a_kill_while_compiling_leaves_nothing_behind(tmp_path: Path) -> None:
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
    assert start(kernels.parent, ASK).stdout == "None\n"
    (library,) = kernels.iterdir()
    assert library.suffix == ".so"


def test_a_compiler_may_say_anything(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.write_bytes(b"#!/bin/sh\nprintf '\\377\\376\\n' >&2\nprintf '\\200'\nexit 1\n")
    broken.chmod(0o755)
    noisy = f"import logging; logging.basicConfig(level=logging.DEBUG)\n{ASK}"
    done = start(tmp_path / "cache", noisy, CXX=str(broken))
    assert (done.returncode, done.stdout) == (0, "broken could not compile the kernels\n")
