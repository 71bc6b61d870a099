"""Help answers at once, and teaches."""

import json
import os
import re
import subprocess
import sys

import pytest

COMMANDS = [
    "run",
    "resume",
    "fit",
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
