"""Honest learners pass, and those that forgot to declare something are told what."""

import importlib
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from deepccg.core import MemoryUsage, ProtocolViolation
from deepccg.experiment import run
from deepccg.methods import ER, SGD

QUICK = {"dataset": "digits", "stream.examples_per_class": 20, "memory": 30}

SCRIPT = '''
"""A user's script: data, a learner, what a run is watched by, all in one module."""
import logging, sys, weakref
import torch
from deepccg.experiment import run
from deepccg.methods import ER
from deepccg.streams import from_arrays, load_dataset

digits = load_dataset("digits")
x, y = digits.train.x[:, 0], digits.train.y
data = from_arrays(x, y, digits.test.x[:, 0], digits.test.y)
logger = logging.getLogger("script")
logger.addHandler(logging.StreamHandler(sys.stderr))
history = []

class Logging(ER):
    def learn(self, batch):
        self.data = batch.x.shape, batch.y.tolist()  # attributes named like globals
        self.seen = weakref.ref(batch.x)
        logger.warning("a step: %s", "x" * 1_000)
        print("a step", file=self.log)
        return super().learn(batch)

def watch(step, steps, info):
    history.append((x[:step], digits.test.x[:step]))

def main(directory):
    with open(directory / "log.txt", "w") as Logging.log:
        settings = {"stream.examples_per_class": 20, "memory": 30, "progress": watch}
        return run(directory=directory / "run", learner=Logging, data=data, **settings)
'''


def test_a_script_with_its_data_beside_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script_of_a_user.py").write_text(SCRIPT, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    result = importlib.import_module("script_of_a_user").main(tmp_path)
    assert result.audit is not None
    assert result.audit["passed"]
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").count("a step") == 20


class Projecting(ER):
    """Has a projection head, and says so only if it is told to."""

    declares: ClassVar[bool] = False

    def build_state(self, seed: int) -> None:
        super().build_state(seed)
        self.projection = torch.nn.Linear(self.dim, 160)

    def memory_usage(self) -> MemoryUsage:
        held = super().memory_usage()
        kept = {"projection": 4 * 160 * (self.dim + 1)} if self.declares else {}
        return MemoryUsage(held.examples, {**held.bytes, **kept})


class Covariance(SGD):
    """Stores no example, but class means and a covariance, which are large."""

    declares: ClassVar[bool] = False

    def build_state(self, seed: int) -> None:
        super().build_state(seed)
        self.means, self.covariance = torch.zeros(10, self.dim), torch.eye(self.dim).double()

    def memory_usage(self) -> MemoryUsage:
        kept = {"means": self.means.nbytes, "covariance": self.covariance.nbytes}
        return MemoryUsage(0, kept if self.declares else {})


@pytest.mark.parametrize(
    ("kind", "largest", "declare"),
    [
        (Projecting, "learner.projection.weight 51,200", 'bytes={"projection": 51840}'),
        (Covariance, "learner.covariance 51,200", 'bytes={"covariance": 51200}'),
    ],
)
def test_who_holds_more_is_told_what_to_declare(
    tmp_path: Path, kind: type[ER], largest: str, declare: str
) -> None:
    with pytest.raises(ProtocolViolation) as raised:
        run(directory=tmp_path / "silent", learner=kind, **QUICK)
    said = str(raised.value)
    assert "\n" not in said
    assert f"Largest: {largest}" in said
    assert said.endswith(f"Name what is meant to be kept in memory_usage(), as in {declare}")
    honest = type("Honest", (kind,), {"declares": True})
    result = run(directory=tmp_path / "honest", learner=honest, **QUICK)
    assert result.audit is not None
    assert result.audit["passed"]
    assert result.audit["memory"]["not_searched"] == []
