"""Shared by the tests of sweeps: short runs, and how to compare their directories."""

import contextlib
import hashlib
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers find odd_learners where this process does

SHORT = {"stream.examples_per_class": 20}


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set a separate cache, and a directory for the marks of odd learners."""
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPCCG_ODD_LEARNERS", str(tmp_path))
    return tmp_path


def fingerprint(directory: Path) -> dict[str, str]:
    """Return a hash of each file that is part of the run's result."""
    excluded = {"previous.safetensors", "log.txt", ".lock"}
    files = {file.name: file.read_bytes() for file in sorted(directory.iterdir())}
    files["timing.json"] = b"%d steps" % json.loads(files["timing.json"])["steps"]  # not their time
    return {
        name: hashlib.blake2b(content).hexdigest()
        for name, content in files.items()
        if name not in excluded
    }


@contextlib.contextmanager
def pressed(when: Callable[[], object]) -> Iterator[None]:
    """Press Ctrl-C as soon as a condition holds."""

    def press() -> None:
        while not when():
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=press, daemon=True).start()
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.fixture
def ctrl_c():
    return pressed


@pytest.fixture
def fingerprints():
    return fingerprint


@pytest.fixture
def short() -> dict[str, int]:
    return dict(SHORT)
