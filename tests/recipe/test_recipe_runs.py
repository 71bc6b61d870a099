"""Options of the recipe in whole runs: names, files, refusals, interruptions, the audit."""

import json
import re
import signal
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from killing import Forks

from deepccg.core import InputError
from deepccg.experiment import resolve, run
from deepccg.experiment.resolve import resolve_config
from deepccg.methods import METHODS
from deepccg.streams import from_arrays

QUICK = {"dataset": "digits", "stream.examples_per_class": 10, "memory": 30}  # 10 batches
STEPS = 10
REPLAYING = [name for name in METHODS if "views" in METHODS[name].Config.model_fields]
OTHERS = [name for name in METHODS if name not in REPLAYING]
OPTIONS = {
    "views": 3,
    "repeats": 3,
    "augment": True,
    "readout": "gaussian",
    "average": 0.9,
    "optimiser": "adamw",
    "momentum": 0.9,
    "weight_decay": 0.01,
    "schedule": "inverse-sqrt",
    "warmup": 4,
}


def files(directory: Path) -> dict[str, bytes]:
    """Every file but two that depend on time."""
    left_out = {"previous.safetensors", "timing.json"}
    found = sorted(directory.iterdir())
    return {file.name: file.read_bytes() for file in found if file.name not in left_out}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))


# Names that runs have, with a recipe or without: a change starts all runs of a method anew.
NAMES = {
    "deepccg": "digits-disjoint-task-deepccg-default-37af9c77",
    "er-ace": "digits-disjoint-task-er-ace-default-a9398004",
    "derpp": "digits-disjoint-task-derpp-default-d4050af1",
    "agem": "digits-disjoint-task-agem-default-84ba9ac6",
}


@pytest.mark.parametrize("method", NAMES)
def test_names_of_runs_without_options_stay(method: str) -> None:
    assert resolve({**QUICK, "method": method}).name() == NAMES[method]
    fields = METHODS[method].Config.model_fields
    defaults = {f"method.{name}": fields[name].default for name in OPTIONS}
    config = resolve({**QUICK, "method": method, **defaults})
    assert config.name() == NAMES[method]
    assert not OPTIONS.keys() & config.method.fields.keys()
    assert resolve_config(config) is config  # complete as it is


@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_that_is_set_is_in_name_and_file(option: str) -> None:
    settings = {**QUICK, "method": "er", f"method.{option}": OPTIONS[option]}
    config = resolve(settings)
    assert config.identity() != resolve({**QUICK, "method": "er"}).identity()
    assert config.method.fields[option] == OPTIONS[option]
    assert resolve_config(config) is config


@pytest.mark.parametrize(
    ("method", "option"),
    [(name, o) for name in OTHERS for o in OPTIONS if o not in METHODS[name].Config.model_fields],
)
def test_methods_without_replay_refuse_it(method: str, option: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=rf"^method\.{option} is not a field; .*$"):
        run(
            directory=tmp_path / "run",
            method=method,
            **{**QUICK, f"method.{option}": OPTIONS[option]},
        )
    assert not (tmp_path / "run").exists()


def test_vectors_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
    y = np.repeat([0, 1], 20)
    data = from_arrays(x[::2], y[::2], x_test=x[1::2], y_test=y[1::2], name="vectors")
    with pytest.raises(InputError, match=r"^views needs images .* \[6\]: leave views at 1$"):
        run(directory=tmp_path / "run", data=data, method="er", memory=4, **{"method.views": 2})
    assert not (tmp_path / "run").exists()


def test_the_command_line_says_it_in_one_line(forks: Forks, tmp_path: Path) -> None:
    command = ["run", "--dataset", "digits", "--method", "ccg", "--set", "method.views=10"]
    done = forks([*command, "--out", "out"], str(tmp_path))
    assert done.status == 2
    assert re.fullmatch(r".*method\.views is not a field; .*\n", done.err)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("method", ["er-ace", "deepccg", "icarl"])
def test_the_audit_counts_a_pass_for_every_view(method: str, tmp_path: Path) -> None:
    passes = {}
    for views in (1, 5):
        found = run(
            directory=tmp_path / f"{views}", method=method, **{**QUICK, "method.views": views}
        )
        passes[views] = json.loads((found.directory / "audit.json").read_text())["passes"]
    assert passes[5]["learning"] == passes[1]["learning"]
    once, often = passes[1]["evaluation"], passes[5]["evaluation"]
    assert often["forward_images"] == 5 * once["forward_images"] > 0


class Interrupted(Exception):
    """Stands for whatever ends a process."""


RESUMED = ("agem", "derpp", "esmer", "icarl", "deepccg", "protocl")
TOGETHER = {"repeats": 2, "augment": True, "views": 2, "optimiser": "adamw", "lr": 0.01}


def cases() -> list[tuple[str, dict[str, object]]]:
    """Each option by itself, of one method after the other, and all together, of each."""
    each = cycle(RESUMED)
    alone = [(method, {name: OPTIONS[name]}) for method, name in zip(each, OPTIONS, strict=False)]
    every = {**TOGETHER, "readout": "gaussian", "warmup": 3, "average": 0.8}
    return [*alone, *((method, every) for method in RESUMED)]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "fields"), cases(), ids=str)
def test_a_run_that_was_interrupted_ends_bit_for_bit_the_same(
    method: str, fields: dict[str, object], tmp_path: Path
) -> None:
    settings = {**QUICK, "method": method} | {f"method.{k}": v for k, v in fields.items()}
    run(directory=tmp_path / "whole", **settings)

    def stop(now: int, _total: int, _info: object) -> None:
        if now == 7:
            raise Interrupted

    with pytest.raises(Interrupted):
        run(directory=tmp_path / "parts", progress=stop, checkpoint_every=1, **settings)
    steps: list[int] = []
    run(directory=tmp_path / "parts", progress=lambda now, *_: steps.append(now), **settings)
    assert steps == list(range(7, STEPS + 1))
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


KILLED = """
import os, signal
from deepccg.experiment import run

def stop(now, total, info):
    if now == 7:
        os.kill(os.getpid(), signal.SIGKILL)

run(directory="parts", progress=stop, checkpoint_every=1, **SETTINGS)
"""


def test_a_run_that_was_killed_ends_bit_for_bit_the_same(forks: Forks, tmp_path: Path) -> None:
    method = "deepccg"
    fields = {**TOGETHER, "average": 0.8, "warmup": 3}
    settings = {**QUICK, "method": method} | {f"method.{k}": v for k, v in fields.items()}
    run(directory=tmp_path / "whole", **settings)
    done = forks(f"SETTINGS = {settings}\n{KILLED}", str(tmp_path))
    assert done.status == -signal.SIGKILL
    run(directory=tmp_path / "parts", **settings)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
