"""Same seed, same machine, same threads: same bits, whatever else uses the global generators."""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from killing import QUICK, SHORTER, Whole, fingerprint, run_in

from deepccg.experiment import run
from deepccg.methods import METHODS

FILES = ("audit.json", "checkpoint.safetensors", "config.toml", "records.jsonl")


def disturb(*_: object) -> None:
    """Use and reseed every global generator there is."""
    number = random.getrandbits(32)
    random.seed(number + 1)
    np.random.seed(number)  # noqa: NPY002
    torch.manual_seed(number)
    torch.rand(3), np.random.random(5), random.random()  # noqa: NPY002, S311


@pytest.mark.slow_for_most
@pytest.mark.parametrize("method", METHODS)
def test_two_processes_give_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Whole], method: str
) -> None:
    """One in a fresh fork, one in this process in the middle of everything else."""
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    random.seed(method)
    disturb()
    run(
        directory=tmp_path / "run",
        method=method,
        progress=disturb,
        **{"stream.examples_per_class": 20, **SHORTER.get(method, {})},
    )
    here, there = fingerprint(tmp_path / "run"), whole(method).files
    assert {name: here[name] for name in FILES} == {name: there[name] for name in FILES}


@pytest.mark.slow  # a process that imports torch
def test_the_order_of_hashes_does_not_matter(tmp_path: Path, whole: Callable[[str], Whole]) -> None:
    program = Path(sys.executable).with_name("deepccg")
    subprocess.run(
        [str(program), "run", "--method", "deepccg", *QUICK],
        cwd=tmp_path,
        env=os.environ | {"PYTHONHASHSEED": "4711", "DEEPCCG_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        check=True,
    )
    here, there = fingerprint(run_in(tmp_path)), whole("deepccg").files
    assert {name: here[name] for name in FILES} == {name: there[name] for name in FILES}
