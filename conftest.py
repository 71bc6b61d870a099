"""Compiled modules are kept; examples in documents and docstrings run in an own directory."""

import os
import sys

import pytest

# Where images for containers forbid it, each process that a test starts compiles PyTorch anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.fixture(autouse=True)
def _examples_write_elsewhere(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        monkeypatch = request.getfixturevalue("monkeypatch")
        monkeypatch.chdir(tmp_path_factory.mktemp("example"))
