"""Whole runs to compare with, and the program called in this process."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from killing import Forks, Whole, whole_run

from deepccg.cli import main


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
