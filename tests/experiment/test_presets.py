"""The one preset mechanism: rules by method, data set, stream and scenario."""

from pathlib import Path
from typing import Any

import pytest

from deepccg.core import InputError
from deepccg.experiment import PRESETS, resolve, resolve_recorded
from deepccg.experiment.presets import Rule, preset_settings
from deepccg.experiment.resolve import resolve_config
from deepccg.methods import METHODS, DeepCCG

KEY = {
    "preset": "default",
    "method": "er",
    "dataset": "cifar10",
    "stream": "disjoint",
    "scenario": "task",
}


@pytest.fixture
def preset_file(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        file = tmp_path / "mine.toml"
        file.write_text(text, encoding="utf-8")
        return str(file)

    return write


@pytest.mark.parametrize(
    ("preset", "documented"),
    [
        (
            "paper",
            {
                "reduction": "sum",
                "variance": "shared",
                "selector": "lasso",
                "target": "printed",
                "embedding_scale": 1.0,
                "mean_gradient": True,
            },
        ),
    ],
)
@pytest.mark.parametrize("dataset", ["digits", "cifar10", "cifar100", "mini-imagenet"])
def test_the_presets_of_deepccg_are_as_documented(
    preset: str, documented: dict[str, Any], dataset: str
) -> None:
    fields = resolve({"preset": preset, "dataset": dataset}).method.fields
    assert fields | documented == fields


@pytest.mark.parametrize("preset", ["default", "paper"])
@pytest.mark.parametrize("method", ["deepccg", "deepccg-reservoir"])
def test_gradients_through_the_means_of_many_classes_are_those_of_a_sample(
    method: str, preset: str
) -> None:
    for dataset, posterior in (("cifar10", "exact"), ("cifar100", "sampled")):
        fields = resolve({"preset": preset, "method": method, "dataset": dataset}).method.fields
        assert fields["posterior"] == posterior
    assert fields["mean_gradient"] is True


def test_the_default_preset_is_the_fields_defaults() -> None:
    assert resolve({}).method.fields == DeepCCG.Config().model_dump(mode="json")


def test_the_presets_differ_in_results() -> None:
    identities = {resolve({"preset": preset}).identity() for preset in PRESETS}
    assert len(identities) == len(PRESETS) == 3


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(("scenario", "memory"), [("task", 10), ("class", 30)])
@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "mini-imagenet"])
def test_the_papers_memory_goes_with_the_scenario(
    preset: str, scenario: str, memory: int, dataset: str
) -> None:
    config = resolve({"preset": preset, "scenario": scenario, "dataset": dataset})
    assert (config.memory, config.memory_per_class) == (None, memory)


@pytest.mark.parametrize(
    ("names", "matches"),
    [
        ({}, True),
        ({"method": "er"}, True),
        ({"method": "sgd"}, False),
        ({"method": ["sgd", "er"]}, True),
        ({"method": ["sgd", "deepccg"]}, False),
        ({"method": []}, False),
        ({"dataset": "cifar10"}, True),
        ({"dataset": "cifar"}, False),  # names are compared whole
        ({"dataset": "cifar100"}, False),
        ({"dataset": ["cifar100", "cifar10"]}, True),
        ({"stream": "disjoint"}, True),
        ({"stream": "shifting-window"}, False),
        ({"stream": ["shifting-window", "disjoint"]}, True),
        ({"scenario": "task"}, True),
        ({"scenario": "class"}, False),
        ({"scenario": ["class", "task"]}, True),
        ({"preset": "paper"}, False),
        ({"preset": ["paper", "default"]}, True),
        ({"method": "er", "dataset": "cifar10", "stream": "disjoint", "scenario": "task"}, True),
        ({"method": "er", "dataset": "cifar10", "stream": "disjoint", "scenario": "class"}, False),
    ],
)
def test_a_rule_matches_where_all_it_names_matches(names: dict[str, Any], matches: bool) -> None:
    assert Rule.model_validate(names).matches(KEY) is matches


def test_a_preset_file_comes_on_top_of_default(preset_file: Any) -> None:
    file = preset_file('[[rule]]\nmethod = "deepccg"\nset = { method = { lr = 0.07 } }\n')
    config = resolve({"preset": file, "dataset": "cifar10"})
    default = resolve({"dataset": "cifar10"})
    assert config.method.fields == default.method.fields | {"lr": 0.07}
    assert config.memory_per_class == default.memory_per_class == 10
    assert resolve({"preset": file, "method.lr": 0.5}).method.fields["lr"] == 0.5
    assert resolve({"preset": file, "method": "er"}) == resolve({"method": "er"}).model_copy(
        update={"preset": f"file:{Path(file).name}"}
    )
    assert resolve(config.model_dump(mode="json", exclude_none=True)) == config


def test_of_several_matching_rules_the_last_wins(preset_file: Any) -> None:
    file = preset_file(
        """
        [[rule]]
        set = { stream = { batch_size = 3, examples_per_class = 9 }, evaluation = { images = 50 } }
        [[rule]]
        dataset = ["cifar10", "digits"]
        scenario = ["task", "class"]
        set = { stream = { batch_size = 4 } }
        [[rule]]
        dataset = "cifar10"
        set.stream.batch_size = 5
        """
    )
    sizes = {
        dataset: resolve({"preset": file, "dataset": dataset}).stream.batch_size
        for dataset in ("mini-imagenet", "digits", "cifar10")
    }
    assert sizes == {"mini-imagenet": 3, "digits": 4, "cifar10": 5}
    config = resolve({"preset": file, "dataset": "cifar10"})
    assert (config.stream.examples_per_class, config.evaluation.images) == (9, 50)


def test_a_rules_memory_displaces_the_one_below(preset_file: Any) -> None:
    file = preset_file("[[rule]]\nset = { memory = 44 }\n")
    config = resolve({"preset": file})
    assert (config.memory, config.memory_per_class) == (44, None)
    config = resolve({"preset": file, "memory_per_class": 3})
    assert (config.memory, config.memory_per_class) == (None, 3)


def test_an_empty_preset_file_is_the_default(preset_file: Any) -> None:
    key = KEY | {"preset": preset_file("# nothing yet\n")}
    assert preset_settings(key) == preset_settings(KEY)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[rule]]\nset = ", "mine.toml is not valid TOML"),
        ("memory = 3\n", "mine.toml: a preset file holds [[rule]] tables and nothing else"),
        ("rule = 3\n", "mine.toml: a preset file holds [[rule]] tables and nothing else"),
        ("rule = [3]\n", "mine.toml: a preset file holds [[rule]] tables and nothing else"),
        ("[[rule]]\n[[rule]]\nmetod = 'er'\n", "mine.toml rule 2.metod is not a field; did you"),
        ("[[rule]]\nscenario = 'tsk'\n", "mine.toml rule 1.scenario should be"),
        ("[[rule]]\nmethod = 3\n", "mine.toml rule 1.method should be"),
        ("[[rule]]\nset = { memory = -4 }\n", "memory should be greater than or equal to 0"),
        ("[[rule]]\nset = { sed = 4 }\n", "sed is not a field; did you mean seed?"),
        ("[[rule]]\nset = { method = { lrr = 4 } }\n", "method.lrr is not a field"),
    ],
)
def test_a_wrong_preset_file_is_one_line(preset_file: Any, text: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        resolve({"preset": preset_file(text)})
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_preset_file_that_is_not_text_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match=r"mine\.toml is not valid TOML"):
        resolve({"preset": str(file)})


@pytest.mark.parametrize("preset", ["defualt", "no/such/file.toml", ""])
def test_the_error_for_an_unknown_preset_lists_the_known_ones(preset: str) -> None:
    known = "default, strong, paper"
    with pytest.raises(InputError, match=f"is neither one of {known} nor a file"):
        resolve({"preset": preset})


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("dataset", ["digits", "cifar10", "cifar100", "mini-imagenet"])
@pytest.mark.parametrize("method", METHODS)
def test_what_was_recorded_is_read_back_as_it_was(method: str, dataset: str, preset: str) -> None:
    config = resolve({"method": method, "dataset": dataset, "preset": preset})
    assert resolve_recorded(config.model_dump(mode="json", exclude_none=True)) == config


def test_a_record_does_not_follow_the_presets_of_today() -> None:
    config = resolve({"dataset": "cifar100", "method.mean_gradient": False})
    fields = config.model_dump(mode="json", exclude_none=True)
    assert fields["method"].pop("posterior") == "sampled"
    then = resolve_recorded(fields).method.fields  # older than the field: what was done then
    assert (then["posterior"], then["mean_gradient"]) == ("exact", False)


def test_a_run_with_a_preset_that_was_removed_can_be_continued() -> None:
    recorded = resolve({"preset": "paper"}).model_dump(mode="json", exclude_none=True)
    config = resolve_recorded(recorded | {"preset": "as-printed"})
    assert resolve_config(config) == config
