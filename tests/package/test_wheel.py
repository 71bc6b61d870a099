"""The wheel: built from the sources, installed elsewhere, and run from there."""

import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from deepccg.core import compile as compilation
from deepccg.core.compile import KernelLibrary, load_kernels
from deepccg.gaussian import kernels as gaussian_kernels
from deepccg.kernel_build import file_name, find_compiler

ROOT = Path(__file__).parents[2]
SOURCES = ["pyproject.toml", "setup.py", "README.md", "LICENSE", "src"]

pytestmark = pytest.mark.slow  # builds, installs, and starts processes that import torch
carries = sys.platform == "linux" and find_compiler() is not None
needs_kernels = pytest.mark.skipif(not carries, reason="no C++ compiler was found, or no Linux")


def python(*arguments: object, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(copy: Path, **environment: str) -> Path:
    """Build the wheel from a copy of the sources; returns its file."""
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    arguments = ("-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", ".")
    python(*arguments, cwd=copy, **environment)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sources"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the wheel is installed, and nothing else."""
    target = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    python("-m", "pip", "install", *options, "--target", target, wheel, cwd=target)
    return target


def test_the_wheel_holds_every_source_the_kernels_and_no_more(wheel: Path) -> None:
    sources = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src" / "deepccg").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    compiled = {name for name in names if name.startswith("deepccg/compiled/")}
    assert names - compiled == sources
    if carries:
        assert sorted(Path(name).name.split("-")[0] for name in compiled) == [
            "gaussian",
            "networks",
        ]
    assert {"deepccg/py.typed", "deepccg/experiment/presets.toml"} <= names
    assert len(licences) == 1


def test_the_installed_wheel_runs(installed: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(installed), "DEEPCCG_CACHE": str(tmp_path / "cache")}
    started = "import sys, deepccg; from deepccg.cli import main"
    where = python("-c", f"{started}; print(deepccg.__file__)", cwd=tmp_path, **environment)
    assert Path(where.strip()).is_relative_to(installed)
    shown = python(
        "-c", f"{started}; sys.argv[1:] = ['version']; main()", cwd=tmp_path, **environment
    )
    assert shown.startswith("deepccg ")
    command = ["run", "--set", "stream.examples_per_class=20", "--preset", "paper", "--json"]
    script = f"{started}; sys.argv[1:] = {command!r}; main()"
    shown = json.loads(python("-c", script, cwd=tmp_path, **environment))
    assert shown["results"][0]["metrics"]["task_accuracy"]["mean"] > 0.7
    (record,) = (tmp_path / "runs").rglob("records.jsonl")
    assert (record.parent / "checkpoint.safetensors").exists()


def test_the_installed_command_starts(installed: Path, tmp_path: Path) -> None:
    command = installed / "bin" / "deepccg"
    shown = python(command, "--help", cwd=tmp_path, PYTHONPATH=str(installed))
    assert "deepccg run" in shown


# Which library each room has loaded, or why none; and what it computes of irregular numbers.
KERNELS = """
import json, torch
from deepccg.gaussian import kernels as gaussian
from deepccg.networks import kernels as networks
found = [room._library() for room in (gaussian, networks)]
result = {"loaded": [each if isinstance(each, str) else each._library._name for each in found]}
if not isinstance(found[1], str):
    x = (torch.arange(20 * 3 * 9 * 9) ** 2 * 37 % 101 / 50 - 1).view(20, 3, 9, 9).requires_grad_()
    weight = (torch.arange(10 * 3 * 9) ** 2 * 41 % 89 / 40 - 1).view(10, 3, 3, 3).requires_grad_()
    y = networks.instance_norm(networks.convolve(x, weight, 2, 1), None, None, 0.1, relu=True)
    y.square().sum().backward()
    result["numbers"] = [part.double().flatten().tolist() for part in (y, x.grad, weight.grad)]
print(json.dumps(result))
"""


def kernels(place: Path, sources: Path, **environment: str) -> dict[str, list[Any]]:
    cache = {"DEEPCCG_CACHE": str(place / "cache"), "PYTHONPATH": str(sources)}
    return json.loads(python("-c", KERNELS, cwd=place, **cache | environment))


WITHOUT_COMPILER = {"PATH": "", "CXX": ""}


@needs_kernels
def test_a_user_without_compiler_has_the_kernels(installed: Path, tmp_path: Path) -> None:
    carried = kernels(tmp_path, installed, **WITHOUT_COMPILER)
    assert [Path(name).parent for name in carried["loaded"]] == [installed / "deepccg/compiled"] * 2
    assert not (tmp_path / "cache").exists()
    compiled_here = kernels(tmp_path, ROOT / "src")
    assert all(Path(name).is_relative_to(tmp_path) for name in compiled_here["loaded"])
    assert carried["numbers"] == compiled_here["numbers"]
    nothing = kernels(tmp_path, ROOT / "src", **WITHOUT_COMPILER)
    assert nothing["loaded"] == ["no C++ compiler was found"] * 2


@needs_kernels
def test_a_run_without_compiler_has_native_kernels(installed: Path, tmp_path: Path) -> None:
    environment = {"PYTHONPATH": str(installed), "DEEPCCG_CACHE": str(tmp_path / "cache")}
    for i in range(6):
        file = tmp_path / "pets" / "ab"[i % 2] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (16, 16), (40 * i, 0, 0)).save(file)
    arguments = ["run", "--dataset", "./pets", "--method", "sgd", "--out", "runs"]
    program = f"import sys; from deepccg.cli import main; sys.argv[1:] = {arguments}; main()"
    python("-c", program, cwd=tmp_path, **environment | WITHOUT_COMPILER)
    (config,) = (tmp_path / "runs").rglob("config.toml")
    assert 'kernels = "native"' in config.read_text()


@needs_kernels
def test_the_libraries_take_the_openmp_of_pytorch(installed: Path, tmp_path: Path) -> None:
    (library,) = (installed / "deepccg" / "compiled").glob("networks-*.so")
    program = f"""
import ctypes
try:
    ctypes.CDLL({str(library)!r})
except OSError as error:
    print(error)
import torch
print(ctypes.CDLL({str(library)!r}).convolve_signature is not None)
"""
    before, after = python("-c", program, cwd=tmp_path).splitlines()
    assert "undefined symbol: GOMP_" in before or "undefined symbol: omp_" in before
    assert after == "True"


def flip_a_bit(library: Path) -> None:
    content = bytearray(library.read_bytes())
    content[len(content) // 2] ^= 1
    library.write_bytes(content)


def put_a_text(library: Path) -> None:
    """Under the name that a whole library of this content has."""
    library.unlink()
    text = b"no library"
    library.with_name(file_name(library.stem.rpartition("-")[0], text)).write_bytes(text)


CHANGES: dict[str, Callable[[Path], None]] = {
    "damaged": flip_a_bit,
    "not to be loaded": put_a_text,
    "cut": lambda library: os.truncate(library, 4096),
    "written by others": lambda library: library.chmod(0o666),
    "in a directory written by others": lambda library: library.parent.chmod(0o777),
    "a link": lambda library: library.symlink_to(library.rename(library.with_suffix(""))),
    "of other sources": lambda library: (
        library.parents[1].joinpath(library.name.split("-")[0], "new.h").write_text("// new\n")
    ),
}
if os.geteuid() == 0:  # only root can give files away
    CHANGES["of another user"] = lambda library: os.chown(library, 54321, 54321)


@pytest.fixture
def copied(installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the installed package, from which this process loads kernels; no compiler."""
    for name, value in WITHOUT_COMPILER.items():
        monkeypatch.setenv(name, value)
    copy = Path(shutil.copytree(installed / "deepccg", tmp_path / "copy" / "deepccg"))
    monkeypatch.setattr(compilation, "_PACKAGE", copy)
    return copy


@needs_kernels
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_carried_library_that_is_not_what_was_installed_is_not_loaded(
    copied: Path, change: Callable[[Path], None]
) -> None:
    room = copied / "gaussian"
    (library,) = (copied / "compiled").glob("gaussian-*.so")
    loaded = load_kernels(room, gaussian_kernels.self_test)
    assert isinstance(loaded, KernelLibrary)
    assert loaded._library._name == str(library)
    change(library)
    assert load_kernels(room, gaussian_kernels.self_test) == "no C++ compiler was found"


@needs_kernels
@pytest.mark.skipif(platform.machine() != "x86_64", reason="carried without instruction sets")
def test_a_processor_that_lacks_the_instructions_has_its_own(
    copied: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    room = copied / "gaussian"
    assert load_kernels(room, gaussian_kernels.self_test) == "no C++ compiler was found"
    monkeypatch.undo()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    monkeypatch.setattr(compilation, "_PACKAGE", copied)
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    loaded = load_kernels(room, gaussian_kernels.self_test)
    assert isinstance(loaded, KernelLibrary)
    assert Path(loaded._library._name).parent == tmp_path / "cache" / "kernels"


def test_without_compiler_the_wheel_is_for_every_platform(tmp_path: Path, wheel: Path) -> None:
    assert build(tmp_path, **WITHOUT_COMPILER).name.endswith("-py3-none-any.whl")
    if carries:
        platform_tag = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        assert wheel.name.endswith(f"-py3-none-{platform_tag}.whl")
        with zipfile.ZipFile(wheel) as archive:
            (about,) = (name for name in archive.namelist() if name.endswith("/WHEEL"))
            assert "Root-Is-Purelib: false" in archive.read(about).decode()
