"""The values that flow refuse what cannot be right."""

import dataclasses

import pytest
import torch
from pydantic import Field, ValidationError

from deepccg.core import Batch, Config, DeepCCGError, InputError, StepInfo, Task


@pytest.mark.parametrize(
    ("classes", "message"), [((), "no classes"), ((1, 2, 1), "names a class twice")]
)
def test_task_needs_distinct_classes(classes, message):
    with pytest.raises(InputError, match=message):
        Task(3, classes)


def test_tasks_are_values():
    assert Task(0, (1, 2)) == Task(0, (1, 2))
    assert len({Task(0, (1, 2)), Task(0, (1, 2)), Task(1, (1, 2))}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Task(0, (1, 2)).id = 1


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        (torch.zeros(3), torch.zeros(3), r"got \[3\] and \[3\]"),
        (torch.zeros(3, 2), torch.zeros(3, 1), r"got \[3, 2\] and \[3, 1\]"),
        (torch.zeros(3, 2), torch.zeros(4), r"got \[3, 2\] and \[4\]"),
        (torch.zeros(0, 2), torch.zeros(0), "at least one example"),
    ],
)
def test_batch_needs_examples_with_one_label_each(x, y, message):
    with pytest.raises(InputError, match=message):
        Batch(x, y.long())


def test_batch_has_a_length():
    assert len(Batch(torch.zeros(3, 1, 2, 2, dtype=torch.uint8), torch.tensor([1, 2, 3]))) == 3


def test_every_error_is_one_of_ours_and_still_a_value_error():
    assert issubclass(InputError, DeepCCGError)
    assert issubclass(InputError, ValueError)


def test_steps_share_no_extras():
    assert StepInfo(0.0).extra is not StepInfo(0.0).extra


class Example(Config):
    lr: float = Field(0.1, gt=0, description="step size")


def test_config_is_frozen_closed_and_checks_its_defaults():
    with pytest.raises(ValidationError, match="frozen"):
        Example().lr = 0.2
    with pytest.raises(ValidationError, match="Extra inputs"):
        Example.model_validate({"learning_rate": 0.2})

    class Wrong(Config):
        lr: float = Field(-1.0, gt=0)

    with pytest.raises(ValidationError, match="greater than 0"):
        Wrong()
