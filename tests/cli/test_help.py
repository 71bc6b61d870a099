"""Help answers at once, and teaches."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from deepccg.cli import app
from deepccg.experiment import RunConfig
from deepccg.records import flatten, parse_toml
from deepccg.sweep import load_grid

COMMANDS = [
    "run",
    "resume",
    "sweep",
    "fit",
    "reproduce",
    "tune",
    "methods",
    "data",
    "stream",
    "predict",
    "version",
    "report",
    "archive",
    "demo",
]
PROBE = """
import json, sys
from deepccg.cli import app
try:
    app(json.loads(sys.argv[1]))
except SystemExit as left:
    assert not left.code, left.code
heavy = {"torch", "datasets", "sklearn", "matplotlib", "pyarrow", "scipy", "pandas"}
print(json.dumps(sorted(heavy & set(sys.modules))), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], ["version"]], ids=" ".join)
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROBE, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert json.loads(done.stderr) == []
    assert done.stdout.strip()


def test_the_commands_are_listed(deepccg) -> None:
    shown = deepccg("--help")
    assert (shown.code, shown.err) == (0, "")
    for command in COMMANDS:
        assert re.search(rf"^\W*{command} ", shown.out, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_shows_an_example(deepccg, command: str) -> None:
    shown = deepccg(command, "--help")
    assert (shown.code, shown.err) == (0, "")
    assert re.search(rf"Example:\s+`?deepccg {command}", shown.out)


def test_no_command_shows_the_help(deepccg) -> None:
    shown = deepccg()
    assert "Usage" in shown.out + shown.err
    assert "run" in shown.out + shown.err


@pytest.mark.parametrize(
    "option",
    [
        "--dataset", "--stream", "--scenario", "--method", "--seeds", "--memory",
        "--memory-per-class", "--preset", "--config", "--set", "--validation", "--eval-every",
        "--eval-images", "--json", "--data-dir", "--out", "--device", "--threads",
        "--checkpoint-every",
    ],
)  # fmt: skip
def test_every_option_of_run_is_explained(deepccg, option: str) -> None:
    line = re.search(rf"{option} .*", deepccg("run", "--help").out)
    assert line is not None
    assert re.search(r"[a-z]{2,} .*\w", line.group())


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_flags_show_no_type_and_every_other_option_a_default(
    deepccg, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "300")  # no line is broken then
    shown = deepccg(*filter(None, [command, "--help"])).out
    assert "bool" not in shown
    group = typer.main.get_command(app)
    params = group.commands[command].params if command else group.params
    valued = [param for param in params if not getattr(param, "is_flag", False)]
    assert shown.count("[default: ") + shown.count("[required]") == len(valued)


FIELDS = {
    "--dataset": "dataset", "--stream": "stream.kind", "--scenario": "scenario",
    "--method": "method.name", "--seeds": "seed", "--preset": "preset",
    "--eval-every": "evaluation.every", "--device": "device", "--threads": "threads",
}  # fmt: skip


def test_the_defaults_in_the_help_of_run_are_those_of_a_run() -> None:
    defaults = flatten(RunConfig().model_dump())
    options = typer.main.get_command(app).commands["run"].params
    shown = {option.opts[0]: option.show_default for option in options}
    for name, field in FIELDS.items():
        assert shown[name] == str(defaults[field])


def test_the_grid_in_the_help_of_sweep_is_the_one_of_the_docs_and_works(deepccg, tmp_path) -> None:
    shown = deepccg("sweep", "--help").out
    lines = shown[shown.index("methods = ") : shown.index("All keys")].splitlines()
    text = "\n".join(line.strip() for line in lines)
    (tmp_path / "grid.toml").write_text(text)
    assert len(load_grid(tmp_path / "grid.toml").jobs()) == 8
    page = Path(__file__).parents[2] / "docs" / "sweeps.md"
    assert parse_toml(text) == parse_toml(page.read_text().split("```toml")[1].split("```")[0])
