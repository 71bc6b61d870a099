"""One thread per test process, slow tests first, how hard Hypothesis searches, forked processes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from deepccg.gaussian import kernels as gaussian_kernels
from deepccg.networks import kernels as network_kernels

sys.path.insert(0, str(Path(__file__).parent / "reliability"))

from killing import Forks, Moment, Outcome

torch.set_num_threads(1)
QUICK_METHODS = ("er", "ccg", "deepccg")  # of tests that are slow for most

# A busy machine is slow, not wrong: no deadlines, no health check of the clock.
settings.register_profile(
    "default",
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# pytest --hypothesis-profile=thorough
settings.register_profile(
    "thorough", max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("default")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first: the processes that run them side by side then end together."""
    for item in items:
        if item.get_closest_marker("slow_for_most"):
            given = item.callspec.params.values()
            if not any(each in given for each in QUICK_METHODS):
                item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture
def without_compiler(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine that has none."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    for kernels in (gaussian_kernels, network_kernels):
        kernels._library.cache_clear()
    yield
    monkeypatch.undo()
    for kernels in (gaussian_kernels, network_kernels):
        kernels._library.cache_clear()


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Runs a command or a program in a process of its own, forked by one that has imported all."""
    environment = {
        "COLUMNS": "160",
        "DEEPCCG_CACHE": str(tmp_path_factory.mktemp("cache")),
        "DEEPCCG_DEBUG": "",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TERM": "dumb",
    }
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "reliability" / "killing.py")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def order(
        work: list[str] | str,
        place: str,
        moment: Moment | None = None,
        environment: dict[str, str] | None = None,
    ) -> Outcome:
        request = {
            "work": work,
            "place": place,
            "moment": moment and asdict(moment),
            "environment": environment,
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        return Outcome(**json.loads(server.stdout.readline()))

    with server:
        yield order
