"""From settings to a complete configuration."""

import tomllib
from typing import Any

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import InputError
from deepccg.experiment import RunConfig, resolve
from deepccg.experiment.resolve import nested
from deepccg.learners.recipe import RecipeConfig
from deepccg.methods import ER, METHODS, SGD, DeepCCG


def as_toml(config: RunConfig) -> str:
    """As a run writes it."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


@pytest.mark.parametrize(
    ("name", "cls"), [("deepccg", DeepCCG), ("er", ER), ("sgd", SGD)], ids=["deepccg", "er", "sgd"]
)
def test_every_field_of_the_method_is_in_a_complete_configuration(name: str, cls: Any) -> None:
    config = resolve({"method": name})
    assert config.method.name == name
    unused = set(RecipeConfig().chosen())  # written down only where they are set
    assert set(config.method.fields) == set(cls.Config.model_fields) - unused


def test_what_the_user_says_wins_over_the_preset_and_that_over_the_default() -> None:
    plain = resolve({"method": "deepccg"}).method.fields
    printed = resolve({"method": "deepccg", "preset": "paper"}).method.fields
    own = resolve(
        {"method": "deepccg", "preset": "paper", "method.reduction": "mean"}
    ).method.fields
    assert (plain["reduction"], printed["reduction"], own["reduction"]) == ("mean", "sum", "mean")
    assert own | {"reduction": "sum"} == printed  # nothing else of the preset was lost
    assert resolve({"method.lr": 0.25}).method.fields["lr"] == 0.25


def test_a_memory_in_total_displaces_the_presets_memory_per_class() -> None:
    assert resolve({}).memory_per_class is not None
    config = resolve({"memory": 33})
    assert (config.memory, config.memory_per_class) == (33, None)
    config = resolve({"memory_per_class": 7})
    assert (config.memory, config.memory_per_class) == (None, 7)
    assert resolve({"memory": 0}).budget(10, (3, 32, 32)) == 0
    config = resolve({"memory_bytes": 308_800})
    assert (config.memory, config.memory_per_class, config.memory_bytes) == (None, None, 308_800)
    assert config.budget(10, (3, 32, 32)) == 100  # of 3,072 bytes, and 16 for class and task
    assert config.budget(10, (20,)) == 308_800 // 96  # floats


def test_two_memories_are_an_error() -> None:
    with pytest.raises(InputError, match="one of them"):
        resolve({"memory": 3, "memory_per_class": 3})


@pytest.mark.parametrize(
    ("settings", "n_classes", "budget"),
    [
        ({"memory": 33}, 10, 33),
        ({"memory_per_class": 30}, 100, 3000),
        ({"memory_per_class": 0}, 10, 0),
    ],
)
def test_the_budget_is_in_total(settings: dict[str, Any], n_classes: int, budget: int) -> None:
    assert resolve(settings).budget(n_classes, (3, 32, 32)) == budget


def test_dotted_keys_become_tables() -> None:
    assert nested({"method": "er", "method.lr": 0.2, "stream": "disjoint", "seed": None}) == {
        "method": {"name": "er", "lr": 0.2},
        "stream": {"kind": "disjoint"},
    }
    assert nested({"stream.batch_size": 4, "stream": {"kind": "disjoint"}}) == {
        "stream": {"batch_size": 4, "kind": "disjoint"}
    }
    assert nested({"a.b.c": 1, "a.b.d": 2, "a.e": 3}) == {"a": {"b": {"c": 1, "d": 2}, "e": 3}}
    assert nested({"method": {"name": "er", "lr": 1}, "method.lr": 2}) == {
        "method": {"name": "er", "lr": 2}
    }


@pytest.mark.parametrize(
    "settings", [{"stream": "joint"}, {"stream.kind": "joint"}, {"stream": {"kind": "joint"}}]
)
def test_joint_is_a_stream_however_it_is_written(settings: dict[str, Any]) -> None:
    stream = resolve(settings | {"stream.batch_size": 4}).stream
    assert (stream.kind, stream.joint, stream.batch_size) == ("disjoint", "tasks", 4)
    assert resolve(settings | {"stream.joint": "classes"}).stream.joint == "classes"


def test_dotted_and_nested_settings_mean_the_same() -> None:
    dotted = resolve({"method": "er", "method.lr": 0.3, "stream.batch_size": 5})
    tables = resolve({"method": {"name": "er", "lr": 0.3}, "stream": {"batch_size": 5}})
    assert dotted == tables


SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "method": st.sampled_from(sorted(METHODS)),
        "method.lr": st.floats(1e-6, 1e6),
        "method.reduction": st.sampled_from(["mean", "sum"]),
        "dataset": st.sampled_from(["digits", "cifar10", "hf:owner/name"]),
        "scenario": st.sampled_from(["task", "class"]),
        "preset": st.sampled_from(["default", "strong", "paper"]),
        "seed": st.integers(0, 2**40),
        "threads": st.integers(1, 4),
        "device": st.sampled_from(["cpu", "cuda:1"]),
        "stream": st.sampled_from(["disjoint", "shifting-window"]),
        "stream.classes_per_task": st.none() | st.integers(1, 9),
        "stream.batch_size": st.integers(1, 99),
        "network.kind": st.sampled_from(["auto", "fixed", "patches", "fourier", "identity"]),
        "network.layers": st.lists(st.integers(1, 300), min_size=1, max_size=3),
        "evaluation.every": st.sampled_from(["end", "task"]) | st.integers(1, 999),
        "evaluation.images": st.none() | st.integers(1, 999),
        "evaluation.validation": st.none() | st.floats(0.01, 0.99),
    },
)
MEMORY = st.sampled_from([{}, {"memory": 12}, {"memory_per_class": 4}, {"memory_bytes": 5000}])


@given(SETTINGS, MEMORY)
def test_a_written_configuration_resolves_to_itself(
    settings: dict[str, Any], memory: dict[str, int]
) -> None:
    known = METHODS[settings.get("method", "deepccg")].Config.model_fields
    foreign = {f"method.{name}" for name in ("lr", "reduction") if name not in known}
    settings = {name: value for name, value in settings.items() if name not in foreign}
    config = resolve(settings | memory)
    assert resolve(tomllib.loads(as_toml(config))) == config


IRRELEVANT = {"threads": 2, "device": "cuda", "seed": 5}
RELEVANT = {
    "dataset": "cifar10",
    "scenario": "class",
    "memory": 12,
    "memory_per_class": 77,
    "method": "sgd",
    "method.lr": 0.05,
    "method.replay": 3,
    "stream.kind": "shifting-window",
    "stream.classes_per_task": 5,
    "stream.examples_per_class": 20,
    "stream.batch_size": 9,
    "network.kind": "mlp",
    "network.width": 11,
    "network.layers": (10, 10),
    "network.remap": True,
    "evaluation.every": 7,
    "evaluation.images": 100,
    "evaluation.validation": 0.1,
}


@pytest.mark.parametrize("field", RELEVANT)
def test_another_result_has_another_identity(field: str) -> None:
    base = resolve({"method": "er"})
    other = resolve({"method": "er", field: RELEVANT[field]})
    assert other.identity() != base.identity()
    assert other.name() != base.name()


def test_all_relevant_changes_have_different_identities() -> None:
    found = {resolve({"method": "er", field: RELEVANT[field]}).identity() for field in RELEVANT}
    assert len(found) == len(RELEVANT)


@pytest.mark.parametrize("field", IRRELEVANT)
def test_the_same_result_has_the_same_identity(field: str) -> None:
    base = resolve({"method": "er"})
    other = resolve({"method": "er", field: IRRELEVANT[field]})
    assert other != base
    assert other.identity() == base.identity()
    assert other.name() == base.name()


@pytest.mark.parametrize(
    ("dataset", "start"),
    [
        ("digits", "digits-disjoint-task-er-default-"),
        ("hf:owner/name", "name-disjoint-task-er-default-"),
        ("some/where/my images", "my-images-disjoint-task-er-default-"),
        ("some/where/pictures/", "pictures-disjoint-task-er-default-"),  # as a shell completes it
        ("../../", "disjoint-task-er-default-"),
    ],
)
def test_a_directory_name_is_plain_and_holds_no_path(dataset: str, start: str) -> None:
    name = resolve({"dataset": dataset, "method": "er"}).name()
    assert name.startswith(start)
    assert "/" not in name
    assert "where" not in name
    assert not name.startswith((".", "-"))  # neither hidden nor read as an option


def test_a_learner_class_gives_its_name_and_fields() -> None:
    config = resolve({"method.lr": 0.5}, learner=SGD)
    assert config.method.name == "deepccg.methods.sgd:SGD"
    assert config.method.fields == resolve({"method": "sgd", "method.lr": 0.5}).method.fields
