"""What the tests of sweeps share: short runs, and how to compare what they leave."""

import hashlib
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # workers find odd_learners where this process does

SHORT = {"stream.examples_per_class": 20}


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a place for what odd learners leave."""
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("DEEPCCG_ODD_LEARNERS", str(tmp_path))
    return tmp_path


def fingerprint(directory: Path) -> dict[str, str]:
    """A hash of each file that holds a part of the run."""
    left_out = {"previous.safetensors", "log.txt", ".lock"}
    files = {file.name: file.read_bytes() for file in sorted(directory.iterdir())}
    return {
        name: hashlib.blake2b(content).hexdigest()
        for name, content in files.items()
        if name not in left_out
    }


@pytest.fixture
def fingerprints():
    return fingerprint


@pytest.fixture
def short() -> dict[str, int]:
    return dict(SHORT)
