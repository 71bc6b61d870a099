"""Weights & Biases, offline."""

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("wandb", reason="the extra deepccg[wandb] is not installed")

from deepccg.records import RunDirectory


def test_an_offline_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracked_run: Callable[..., RunDirectory]
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    directory = tracked_run(tmp_path / "run", "wandb", 65)
    assert directory.finished
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*"))
