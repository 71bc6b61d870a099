"""One thread per test process, slow tests first, how hard Hypothesis searches, no compiler."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

from deepccg.gaussian import kernels as gaussian_kernels
from deepccg.networks import kernels as network_kernels

torch.set_num_threads(1)

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


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first: the processes that run them side by side then end together."""
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
