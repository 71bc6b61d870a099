"""A memory in bytes: as many examples, or as many features, as fit into it."""

from pathlib import Path

import pytest

from deepccg.core import InputError
from deepccg.experiment import resolve, run
from deepccg.experiment.build import build_learner
from deepccg.experiment.config import example_bytes
from deepccg.methods import CCG, ER, METHODS
from deepccg.networks import Patches
from deepccg.records import RunDirectory

CIFAR = (3, 32, 32)
PAPER = {("task", 10): 47, ("class", 10): 83, ("task", 100): 143, ("class", 100): 256}


@pytest.mark.parametrize(("where", "filters"), PAPER.items())
def test_the_papers_memory_in_filters(where: tuple[str, int], filters: int) -> None:
    scenario, classes = where
    per_class = {"task": 10, "class": 30}[scenario]
    size = per_class * classes * example_bytes(CIFAR)
    dataset = {10: "cifar10", 100: "cifar100"}[classes]
    for memory in ({}, {"memory_bytes": size}):
        config = resolve({"dataset": dataset, "scenario": scenario, "method": "ccg", **memory})
        learner = build_learner(config, CIFAR, tuple(range(classes)), CCG)
        network = learner.network
        assert isinstance(network, Patches)
        assert len(network.weight) == filters
        assert learner.memory.capacity == per_class * classes
        dim = network.dim
        held = 4 * dim * (dim + 1) // 2 + classes * (4 * dim + 8)
        assert held <= size < held + 4 * 9 * (dim + classes + 8)  # one filter more does not fit


def test_examples_fill_the_bytes() -> None:
    config = resolve({"method": "er", "memory_bytes": 10_000})
    learner = build_learner(config, (20,), (0, 1), ER)
    assert learner.memory.capacity == 10_000 // 96


def test_more_features_than_fit_are_refused_in_one_line() -> None:
    config = resolve({"method": "ccg", "memory_bytes": 20_000, "network.filters": 400})
    with pytest.raises(InputError, match=r"statistics of 3200 features do not fit .* raise memory"):
        build_learner(config, CIFAR, (0, 1), CCG)
    with pytest.raises(InputError, match=r"input's own 3072 are among them: raise memory_bytes"):
        build_learner(resolve({"method": "randumb", "memory_bytes": 926_400}), CIFAR, (0, 1), CCG)
    for size in (0, 100):
        config = resolve({"method": "ccg", "memory_bytes": size})
        with pytest.raises(InputError, match="do not fit into the memory"):
            build_learner(config, (64,), (0, 1), CCG)


@pytest.mark.parametrize("method", ["ccg", "slda", "randumb", "ncm"])
def test_few_examples_do_not_make_few_features(method: str) -> None:
    config = resolve({"method": method, "memory": 3})
    images = build_learner(config, CIFAR, (0, 1), METHODS[method])
    assert images.network.dim >= 80  # type: ignore[attr-defined]  # of every method here
    vectors = build_learner(config, (20,), (0, 1), METHODS[method])
    assert vectors.network.dim >= 20  # type: ignore[attr-defined]


@pytest.mark.parametrize("fields", [{}, {"predictive": "student-t"}, {"covariance": "isotropic"}])
def test_runs_name_the_bytes_of_every_half_life(tmp_path: Path, fields: dict[str, str]) -> None:
    """The audit finds no more than is named: statistics and what answers, for each of them."""
    settings = {f"method.{name}": value for name, value in fields.items()}
    small = {"stream.examples_per_class": 20, "evaluation.every": "task"}
    config = resolve({"method": "ccg", "method.half_lives": [300, 50, 10], **small, **settings})
    result = run(config, tmp_path / "run")
    audit = RunDirectory(result.directory).audit()
    assert audit is not None
    assert audit["passed"]
