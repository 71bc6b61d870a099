"""What the tests of experiments share: a cache of their own, and how a run gets interrupted."""

from collections.abc import Callable
from pathlib import Path

import pytest

from deepccg.core import StepInfo
from deepccg.experiment import writer

Progress = Callable[[int, int, StepInfo], None]
SHORTER = {"gdumb": {"method.passes": 4}}  # it trains at every look; published are 256 passes


class Interrupted(Exception):
    """Stands for whatever ends a process."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    monkeypatch.setenv("DEEPCCG_CACHE", str(cache))
    return cache


@pytest.fixture(scope="session")
def shorter() -> Callable[[str], dict[str, int]]:
    """Settings that shorten runs of a method, where it makes no difference."""
    return lambda method: SHORTER.get(method, {})


@pytest.fixture
def interrupted() -> type[Interrupted]:
    return Interrupted


@pytest.fixture
def checkpoint_every(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the seconds between checkpoints; 0 means after every step."""

    def set_seconds(seconds: float) -> None:
        monkeypatch.setattr(writer, "CHECKPOINT_SECONDS", seconds)

    return set_seconds


@pytest.fixture
def stop_at() -> Callable[[int], Progress]:
    """A progress callback that interrupts the run at a step, before that step is scored."""

    def make(step: int) -> Progress:
        def progress(now: int, _total: int, _info: StepInfo) -> None:
            if now == step:
                raise Interrupted

        return progress

    return make
