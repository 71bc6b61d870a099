"""A method can be read from top to bottom: shallow classes, short steps, few files, two seams."""

import inspect
import re
import sys
from pathlib import Path

import pytest
import torch

import deepccg
from deepccg.core import Batch, Learner, Task
from deepccg.methods import METHODS
from deepccg.networks import MLP

PACKAGE = Path(deepccg.__file__).parent


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_at_most_three_classes_deep(method):
    ancestors = [c for c in METHODS[method].__mro__[1:] if issubclass(c, Learner)]
    assert len(ancestors) <= 3


@pytest.mark.parametrize("method", METHODS)
def test_a_step_is_read_on_one_screen(method):
    assert len(inspect.getsource(METHODS[method].learn).splitlines()) <= 25


def files_of_a_step(learner: Learner) -> set[str]:
    """Files of this package that one step runs through, without the contract and the network."""

    def batch(task: int) -> Batch:
        labels = torch.tensor([2 * task, 2 * task + 1] * 3)
        return Batch(torch.randn(6, 3), labels, Task(task, (2 * task, 2 * task + 1)))

    for task in (0, 0, 0, 1, 1):
        learner.learn(batch(task))
    files = set()

    def profile(frame, event, _):
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(PACKAGE):
            files.add(path.relative_to(PACKAGE).as_posix())

    last = batch(1)
    sys.setprofile(profile)
    try:
        learner.learn(last)
    finally:
        sys.setprofile(None)
    return {file for file in files if not file.startswith(("core/", "networks/"))}


@pytest.mark.parametrize(
    ("method", "fields", "most"),
    [("deepccg", {}, 10), ("deepccg", {"posterior": "sampled"}, 11), ("er", {}, 6)],
)
def test_a_step_crosses_few_files(method, fields, most):
    config = METHODS[method].Config(**fields)
    learner = METHODS[method](MLP(features=3), config, memory=8, classes=range(4))
    files = files_of_a_step(learner)
    assert f"methods/{method}.py" in files
    assert len(files) <= most, sorted(files)


@pytest.mark.parametrize(
    ("seam", "pattern"),
    [
        ("stored inputs enter the network with the batch", r"cat\(\[(x|inputs), self\.memory\.x"),
        ("weights move by the step size", r"config\.lr\b"),
    ],
)
def test_there_is_one_place_where(seam, pattern):
    del seam
    rooms = [*PACKAGE.glob("methods/*.py"), *PACKAGE.glob("learners/*.py")]
    found = [path.name for path in rooms for _ in re.findall(pattern, path.read_text())]
    assert found == ["base.py"]
