"""The wheel: built from the sources, installed elsewhere, and run from there."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ["pyproject.toml", "README.md", "LICENSE", "src"]

pytestmark = pytest.mark.slow  # builds, installs, and starts processes that import torch


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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from a copy of the sources."""
    copy = tmp_path_factory.mktemp("sources")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
            shutil.copytree(ROOT / name, copy / name, ignore=ignored)
        else:
            shutil.copy(ROOT / name, copy / name)
    python("-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", ".", cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in which the wheel is installed, and nothing else."""
    target = tmp_path_factory.mktemp("installed")
    options = ("--quiet", "--no-deps", "--no-index", "--disable-pip-version-check")
    python("-m", "pip", "install", *options, "--target", target, wheel, cwd=target)
    return target


def test_the_wheel_holds_every_source_and_no_more(wheel: Path) -> None:
    sources = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src" / "deepccg").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        licences = [name for name in archive.namelist() if name.endswith("/LICENSE")]
    assert names == sources
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
