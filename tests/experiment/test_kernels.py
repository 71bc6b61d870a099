"""Which kernels a run computes with: decided once, recorded, and kept."""

from pathlib import Path

import numpy as np
import pytest

from deepccg.experiment import resolve, resume, run
from deepccg.networks.kernels import unavailable_reason
from deepccg.records import RunDirectory
from deepccg.streams import Dataset, from_arrays

HERE = "native" if unavailable_reason() is None else "torch"
QUICK = {"method": "er", "memory": 8, "network.width": 2, "evaluation.every": "end"}


def data(side: int = 16) -> Dataset:
    drawn = np.random.default_rng(0).integers(0, 256, (80, side, side, 3), dtype=np.uint8)
    y = np.arange(80) % 4
    return from_arrays(drawn[:60], y[:60], drawn[60:], y[60:])


def recorded(directory: Path) -> str:
    return RunDirectory(directory).config()["kernels"]


def final_bytes(directory: Path) -> bytes:
    return RunDirectory(directory).checkpoint_path.read_bytes()


def test_auto_is_native_for_a_resnet_and_torch_for_the_rest(tmp_path):
    run(directory=tmp_path / "images", data=data(), **QUICK)
    assert recorded(tmp_path / "images") == HERE
    run(directory=tmp_path / "small", data=data(8), **QUICK)
    assert recorded(tmp_path / "small") == "torch"


@pytest.mark.parametrize("kernels", ["torch", "native"])
def test_a_run_continues_bit_for_bit_with_what_it_began_with(
    tmp_path, stop_at, interrupted, checkpoint_every, kernels
):
    run(directory=tmp_path / "whole", data=data(), kernels=kernels, **QUICK)
    checkpoint_every(0)
    with pytest.raises(interrupted):
        run(directory=tmp_path / "cut", data=data(), kernels=kernels, progress=stop_at(3), **QUICK)
    run(directory=tmp_path / "cut", data=data(), **QUICK)  # auto: as it began
    assert recorded(tmp_path / "cut") == kernels
    assert final_bytes(tmp_path / "cut") == final_bytes(tmp_path / "whole")


def test_runs_older_than_the_kernels_setting_continue_with_torch(
    tmp_path, stop_at, interrupted, checkpoint_every
):
    run(directory=tmp_path / "whole", data=data(), kernels="torch", **QUICK)
    checkpoint_every(0)
    with pytest.raises(interrupted):
        run(directory=tmp_path / "old", data=data(), kernels="torch", progress=stop_at(3), **QUICK)
    path = RunDirectory(tmp_path / "old").config_path
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith("kernels")))
    result = resume(tmp_path / "old", data=data())
    assert result.config.kernels == "torch"
    assert final_bytes(tmp_path / "old") == final_bytes(tmp_path / "whole")


def test_kernels_do_not_name_a_run():
    names = {resolve({"kernels": kernels}).name() for kernels in ("auto", "torch", "native")}
    assert len(names) == 1
