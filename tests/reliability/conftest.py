"""A process that has imported the package and forks runs of it; see killing.py beside this."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pytest

from deepccg.cli import main

sys.path.insert(0, str(Path(__file__).parent))  # killing.py is a script as well as a module

from killing import Forks, Moment, Outcome, Whole, whole_run


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Runs a command in a process of its own, lets something happen to it, returns what is left."""
    environment = {
        "COLUMNS": "160",
        "DEEPCCG_CACHE": str(tmp_path_factory.mktemp("cache")),
        "DEEPCCG_DEBUG": "",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TERM": "dumb",
    }
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("killing.py"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def order(arguments: list[str], place: str, moment: Moment | None = None) -> Outcome:
        request = {"arguments": arguments, "place": place, "moment": moment and asdict(moment)}
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        return Outcome(**json.loads(server.stdout.readline()))

    with server:
        yield order


@pytest.fixture(scope="session")
def whole(forks: Forks, tmp_path_factory: pytest.TempPathFactory):
    """What each method leaves when nothing happens; run when first asked for."""
    known: dict[str, Whole] = {}

    def of(method: str) -> Whole:
        if method not in known:
            known[method] = whole_run(forks, method, tmp_path_factory.mktemp("whole"))
        return known[method]

    return of


class Said(NamedTuple):
    """What a command left behind."""

    code: int
    out: str
    err: str


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Calls the program in this process, in an empty directory."""
    place = tmp_path / "place"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPCCG_DEBUG", "")
    monkeypatch.setenv("TERM", "dumb")

    def call(*arguments: object) -> Said:
        monkeypatch.setattr(sys, "argv", ["deepccg", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main()
        out, err = capsys.readouterr()
        return Said(int(left.value.code or 0), out, err)

    return call
