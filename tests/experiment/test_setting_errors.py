"""A setting that cannot be used is one line that names it."""

from typing import Any

import pytest

from deepccg.core import InputError
from deepccg.experiment import RunConfig, learner_class, resolve, validated
from deepccg.methods import ER


def message(settings: dict[str, Any]) -> str:
    with pytest.raises(InputError) as caught:
        resolve(settings)
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"datset": "digits"}, ["datset is not a field", "did you mean dataset?"]),
        ({"zzz": 1}, ["zzz is not a field", "known: dataset, scenario"]),
        ({"stream.batch_sze": 1}, ["stream.batch_sze is not a field", "did you mean batch_size?"]),
        ({"network": {"zzz": 1}}, ["network.zzz is not a field", "known: kind, width"]),
        ({"evaluation.imges": 1}, ["evaluation.imges is not a field", "did you mean images?"]),
        ({"method.sellector": "lasso"}, ["method.sellector", "did you mean selector?"]),
        ({"method": "sgd", "method.replay": 5}, ["method.replay is not a field", "known: lr"]),
        ({"data_dir": "x"}, ["data_dir is not a field"]),
    ],
)
def test_an_unknown_field_is_named_with_a_hint(settings: dict[str, Any], says: list[str]) -> None:
    text = message(settings)
    for part in says:
        assert part in text


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"memory": -1}, "memory should be greater than or equal to 0; got -1"),
        ({"memory_per_class": 1.5}, "memory_per_class should be a valid integer"),
        ({"seed": "x"}, "seed should be a valid integer"),
        ({"threads": 0}, "threads should be greater than 0; got 0"),
        ({"scenario": "domain"}, "scenario should be 'task' or 'class'; got 'domain'"),
        ({"stream": "shuffled"}, "stream.kind should be 'disjoint', 'shifting-window'"),
        ({"stream.batch_size": 0}, "stream.batch_size should be greater than 0; got 0"),
        ({"stream": 4}, "stream should be a valid dictionary"),
        ({"evaluation.validation": 3}, "evaluation.validation should be less than 1; got 3"),
        ({"evaluation.validation": 0}, "evaluation.validation should be greater than 0; got 0"),
        ({"evaluation.every": 0}, "evaluation.every should be greater than 0 or 'end' or 'task'"),
        ({"evaluation.images": "all"}, "evaluation.images should be a valid integer"),
        ({"network.kind": "vit"}, "network.kind should be 'auto', 'resnet18', 'mlp', 'identi"),
        ({"network.layers": []}, "network.layers should"),
        ({"method.lr": -1}, "method.lr should be greater than 0; got -1"),
        ({"method.selector": "best"}, "method.selector should be 'lasso', 'greedy'"),
        ({"method.embedding_scale": "big"}, "method.embedding_scale should be a valid number"),
        ({"method": {"name": 3}}, "method.name should be a valid string; got 3"),
        ({"preset": 3}, "preset should be a valid string; got 3"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_right(settings: dict[str, Any], says: str) -> None:
    assert says in message(settings)


@pytest.mark.parametrize("name", ["nope", "", ":ER", ".relative:ER", "not a module:ER", "a..b:C"])
def test_the_error_for_an_unknown_method_lists_the_known_ones(name: str) -> None:
    assert f"unknown method {name!r}: choose one of sgd, multi-task" in message(
        {"method.name": name}
    )


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no.such.module:Mine", "cannot import method no.such.module:Mine"),
        ("deepccg.methods:Mine", "cannot import method deepccg.methods:Mine"),
        ("deepccg.methods:", "cannot import method deepccg.methods:"),
        ("pathlib:Path", "pathlib:Path is not a subclass of deepccg.Learner"),
        ("os:getcwd", "os:getcwd is not a subclass of deepccg.Learner"),
    ],
)
def test_a_class_that_is_no_learner_is_refused(name: str, says: str) -> None:
    assert says in message({"method": name})


def test_a_class_by_its_name() -> None:
    assert learner_class("deepccg.methods.er:ER") is ER
    assert learner_class("er") is ER


def test_only_the_first_of_several_errors_is_reported() -> None:
    with pytest.raises(InputError) as caught:
        validated(RunConfig, {"memory": -1, "seed": "x", "nope": 1})
    assert str(caught.value).count(";") == 1
