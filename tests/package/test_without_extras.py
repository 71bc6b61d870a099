"""An environment with the hard dependencies alone: what it does, and how it asks for more."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]

pytestmark = pytest.mark.slow  # starts processes that import torch


def needed(requirements: list[str]) -> set[str]:
    """The names of these distributions, and of all that they need."""
    found: set[str] = set()
    todo = list(map(Requirement, requirements))
    while todo:
        each = todo.pop()
        name = re.sub(r"[-_.]+", "-", each.name).lower()
        if name not in found and (each.marker is None or each.marker.evaluate({"extra": ""})):
            found.add(name)
            todo += map(Requirement, distribution(name).requires or [])
    return found


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of such an environment: its packages are links to those of this one."""
    place = tmp_path_factory.mktemp("light") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (packages,) = place.glob("lib/python*/site-packages")
    own = {str(file.parts[0]) for file in distribution("deepccg").files or []}
    kept = {name: distribution(name) for name in needed(PROJECT["dependencies"])}
    for found in (*kept.values(), distribution("deepccg")):
        parts = {str(file.parts[0]) for file in found.files or []} - {"..", "__pycache__"}
        for part in parts - {each for each in own if not each.endswith(".dist-info")}:
            link = packages / part
            if not link.exists():
                link.symlink_to(Path(str(found.locate_file(part))).resolve())
    (packages / "deepccg.pth").write_text(str(ROOT / "src"))
    return place / "bin" / "python"


def start(python: Path, script: str, place: Path, *arguments: str) -> str:
    outside = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    environment = {name: value for name, value in os.environ.items() if name not in outside}
    done = subprocess.run(
        [python, "-c", script, *arguments],
        cwd=place,
        env=environment | {"DEEPCCG_CACHE": str(place / "cache"), "COLUMNS": "160"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


# Runs the commands given as JSON, one after the other; prints what each left behind.
COMMANDS = """
import contextlib, io, json, sys
from deepccg.cli import main
results = []
for command in json.loads(sys.argv[1]):
    sys.argv[1:] = command
    with contextlib.redirect_stdout(io.StringIO()) as out:
        with contextlib.redirect_stderr(io.StringIO()) as err:
            try:
                main()
            except SystemExit as left:
                code = left.code or 0
    results.append((code, out.getvalue(), err.getvalue()))
print(json.dumps(results))
"""


def commands(light: Path, place: Path, *lines: str) -> list[tuple[int, str, str]]:
    given = json.dumps([line.split() for line in lines])
    return [tuple(each) for each in json.loads(start(light, COMMANDS, place, given))]


def test_no_extra_is_there(light: Path, tmp_path: Path) -> None:
    extra = needed([line for lines in EXTRAS.values() for line in lines if "deepccg" not in line])
    absent = extra - needed(PROJECT["dependencies"])
    assert {"datasets", "matplotlib", "pandas", "pyarrow", "pytest", "ray"} <= absent
    script = "import importlib.metadata as m; print(*(each.name for each in m.distributions()))"
    there = set(start(light, script, tmp_path).lower().split())
    assert "torch" in there
    assert not there & absent


LEARN = """
import numpy as np
import deepccg
rng = np.random.default_rng(0)
x = np.concatenate([rng.normal(mean, 0.1, size=(20, 4)) for mean in (0, 3)])
y = np.repeat(["ant", "bee"], 20)
model = deepccg.DeepCCGClassifier(random_state=0).fit(x, y)
model.save("model.state")
again = deepccg.DeepCCGClassifier.load("model.state")
assert (again.predict_proba(x) == model.predict_proba(x)).all()
print(float((again.predict(x) == y).mean()))
for use in (lambda: model.export("model.onnx"), lambda: deepccg.RiverClassifier):
    try:
        use()
    except deepccg.InputError as error:
        print(error)
"""


def test_a_classifier_learns_predicts_is_saved_and_loaded(light: Path, tmp_path: Path) -> None:
    accuracy, onnx, river = start(light, LEARN, tmp_path).splitlines()
    assert float(accuracy) > 0.9
    assert onnx.endswith("pip install 'deepccg[onnx]'")
    assert river.endswith("pip install 'deepccg[river]'")
    assert not (tmp_path / "model.onnx").exists()


RUN = "run --method er --set stream.examples_per_class=20 --out runs"


@pytest.fixture(scope="module")
def finished(light: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the runs of two seeds."""
    place = tmp_path_factory.mktemp("finished")
    ((code, out, err),) = commands(light, place, f"{RUN} --dataset digits --seeds 0-1 --json")
    assert code == 0, err
    assert json.loads(out)["results"][0]["metrics"]["task_accuracy"]["mean"] > 0.7
    return place / "runs"


def test_runs_and_their_pages_need_no_extra(light: Path, finished: Path, tmp_path: Path) -> None:
    done = commands(
        light,
        tmp_path,
        f"report {finished} --out page.html",
        f"archive {finished} --to runs.jsonl",
        "report runs.jsonl --out archived.html",
        "demo",
        "data",
        "methods er",
    )
    assert [code for code, *_ in done] == [0] * len(done), done
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") > 3  # curves, heat map, dots
    assert (tmp_path / "demo.html").stat().st_size > 10_000


MISSING = {
    f"{RUN} --dataset cifar10": "hub",
    f"{RUN} --dataset hf:somebody/pets": "hub",
    f"{RUN} --dataset cifar10 --data-dir data": "hub",
    "archive runs --to runs.parquet": "hub",
    "report runs.parquet --out page.html": "hub",
    "report runs --out page.html --export figures": "plots",
    "stream --dataset digits --png stream.png": "plots",
    "reproduce shift --quick --out shift": "plots",
    f"{RUN} --dataset digits --track mlflow": "tracking",
    f"{RUN} --dataset digits --track tensorboard": "tracking",
    f"{RUN} --dataset digits --track wandb": "wandb",
    "fit --dataset digits --engine ray --out runs": "ray",
    "tune --method er --space lr=0.1,0.2 --search optuna --trials 2 --out runs": "tune",
}


def test_what_is_missing_is_said_with_its_pip_line(
    light: Path, finished: Path, tmp_path: Path
) -> None:
    shutil.copytree(finished, tmp_path / "runs")
    (tmp_path / "data" / "cifar10" / "plain_text").mkdir(parents=True)
    (tmp_path / "data" / "cifar10" / "plain_text" / "train-0.parquet").touch()
    (tmp_path / "runs.parquet").touch()
    before = set(tmp_path.rglob("*"))
    done = commands(light, tmp_path, *MISSING)
    for (command, extra), (code, _out, err) in zip(MISSING.items(), done, strict=True):
        (line,) = err.splitlines()
        assert code == 2, (command, line)
        assert line.startswith("Error: "), command
        assert f"pip install 'deepccg[{extra}]'" in line, (command, line)
    written = {path for path in set(tmp_path.rglob("*")) - before if path.is_file()}
    assert written == set()


def test_every_extra_is_asked_for_somewhere_and_in_all() -> None:
    own = set(EXTRAS) - {"all", "dev", "docs"}  # the last two are for those who work on it
    assert {*MISSING.values(), "onnx", "river"} == own
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.extras == own


def test_a_fresh_clone_installs_pinned_versions_that_the_package_allows() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pins = {Requirement(line).name.lower().replace("_", "-"): Requirement(line) for line in lines}
    assert str(pins["torch"].specifier) == "==2.13.0"
    asked = [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]
    for each in map(Requirement, asked):
        if each.name != "deepccg":
            (pin,) = pins[each.name].specifier
            assert pin.operator == "=="
            assert pin.version in each.specifier, each.name


@pytest.mark.parametrize(("there", "used"), [(False, ".venv-run"), (True, ".venv")])
def test_make_run_takes_the_full_environment_only_if_it_is_there(
    tmp_path: Path, there: bool, used: str
) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    if there:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / ".installed").touch()
    done = subprocess.run(
        ["make", "--dry-run", "run"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert len(installs) == (0 if there else 1)
    assert all(line.endswith("--editable '.'") for line in installs)
    assert f"{used}/bin/deepccg report runs/ --out runs/report.html" in lines
