"""``--method module:Class``, with a file in the working directory."""

import tomllib
from pathlib import Path

import pytest

OWN = """
from deepccg.methods.er import ER
from deepccg.memory import draw_balanced


class BalancedER(ER):
    \"\"\"ER whose replay is balanced over the stored classes.\"\"\"

    def draw_replay(self):
        return draw_balanced(self.memory.y, self.config.replay, self.generator)
"""
QUICK = ("--set", "stream.examples_per_class=10")

pytestmark = pytest.mark.slow  # starts processes


@pytest.fixture(autouse=True)
def module(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the installed program finds it: no path leads there."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (place / "mymod.py").write_text(OWN)


def test_it_is_shown_run_and_tuned(deepccg_process, place: Path) -> None:
    shown = deepccg_process("methods", "mymod:BalancedER")
    assert shown.code == 0, shown.err
    assert "balanced over the stored classes" in shown.words
    ran = deepccg_process("run", "--method", "mymod:BalancedER", *QUICK)
    assert ran.code == 0, ran.err
    words = ("--method", "mymod:BalancedER", "--space", "lr=0.1", "--seeds", "0", "-j", "1")
    tuned = deepccg_process("tune", *words, *QUICK, "--write", "mine.toml")
    assert tuned.code == 0, tuned.err
    (rule,) = tomllib.loads((place / "mine.toml").read_text())["rule"]
    assert rule["method"] == "mymod:BalancedER"


def test_it_is_swept_by_other_processes(deepccg_process, place: Path) -> None:
    (place / "grid.toml").write_text("settings = { stream = { examples_per_class = 10 } }\n")
    done = deepccg_process("sweep", "grid.toml", "--method", "mymod:BalancedER", "-j", "1")
    assert done.code == 0, done.err
    assert "1 finished" in done.err


def test_it_stands_in_a_reproduced_table(deepccg_process) -> None:
    words = ("--quick", "--methods", "mymod:BalancedER,er", "--seeds", "0", "-j", "1")
    done = deepccg_process("reproduce", "ablation", *words)
    assert done.code == 0, done.err
    assert "missing" not in done.err
    (first, second) = [line for line in done.out.splitlines() if "BalancedER" in line]
    assert first.split()[-1] == second.split()[-1] == "1"  # a seed in each column
