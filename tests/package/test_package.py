"""The package as a whole: light to import, complete, and of one version."""

import importlib.resources
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points, version
from pathlib import Path

import pytest

import deepccg

ROOT = Path(__file__).parents[2]


def test_importing_the_package_imports_nothing_heavy() -> None:
    script = (
        "import sys, json, deepccg\n"
        "deepccg.__version__, dir(deepccg)\n"
        "print(json.dumps(sorted({name.partition('.')[0] for name in sys.modules})))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = set(json.loads(done.stdout))
    heavy = {"torch", "numpy", "pydantic", "sklearn", "datasets", "matplotlib", "PIL", "rich"}
    assert loaded & heavy == set()
    assert "deepccg" in loaded


@pytest.mark.slow
def test_estimators_load_no_experiment_code() -> None:
    code = (
        "import sys, deepccg.estimator.river;"
        "print({name.split('.')[1] for name in sys.modules if name.startswith('deepccg.')})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rooms = {room.strip("'") for room in done.stdout.strip("{}\n").split(", ")}
    assert "estimator" in rooms
    assert not rooms & {"experiment", "sweep", "streams", "tracking", "report"}


def test_the_package_is_a_program_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "deepccg", "version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"deepccg {deepccg.__version__} ")


@pytest.mark.parametrize("name", [*deepccg.__all__, "RiverCCGClassifier", "RiverClassifier"])
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(deepccg, name) is not None
    assert name in dir(deepccg)


def test_a_public_name_is_the_object_of_its_room() -> None:
    from deepccg.core import Batch
    from deepccg.experiment import run
    from deepccg.methods import METHODS

    assert deepccg.Batch is Batch
    assert deepccg.run is run
    assert deepccg.METHODS is METHODS


def test_star_imports_what_is_public() -> None:
    found: dict[str, object] = {}
    exec("from deepccg import *", found)  # noqa: S102  (the statement under test)
    assert set(deepccg.__all__) <= set(found)
    assert not {"RiverCCGClassifier", "RiverClassifier"} & set(found)  # they need an extra


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'deepccg' has no attribute 'DeepCGC'"):
        _ = deepccg.DeepCGC
    with pytest.raises(ImportError, match="cannot import name 'nothing'"):
        exec("from deepccg import nothing")  # noqa: S102  (the statement under test)


def test_types_and_presets_are_shipped() -> None:
    files = importlib.resources.files("deepccg")
    assert files.joinpath("py.typed").is_file()
    assert files.joinpath("experiment", "presets.toml").is_file()


def test_the_command_is_declared() -> None:
    (command,) = entry_points(group="console_scripts", name="deepccg")
    assert callable(command.load())


def test_the_version_is_the_same_everywhere() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = re.search(r"^version: *(\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited is not None
    assert deepccg.__version__ == declared["version"] == cited.group(1).strip("\"'")
    assert version("deepccg") == deepccg.__version__
