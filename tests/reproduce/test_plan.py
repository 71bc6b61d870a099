"""The paper's experiments, as configurations."""

from pathlib import Path

import pytest

from deepccg.core import InputError
from deepccg.methods import METHODS
from deepccg.records import paper_tables
from deepccg.reproduce import Column, Variant, plan
from deepccg.reproduce.plan import EXPERIMENTS

PAPER = paper_tables()
ALL = PAPER["hyperparameters"]["all"]


def test_table_1_has_the_papers_rows_and_columns() -> None:
    asked = plan("table1", datasets=["cifar10", "cifar100", "mini-imagenet"])
    columns = {f"{column.dataset.replace('-', '')}/{column.stream}" for column in asked.columns}
    assert columns == set(PAPER["columns"])
    for scenario in ("task", "class"):
        column = Column("cifar100", "disjoint", scenario)
        assert column in asked.columns
        rows = {asked.paper(variant, column) for variant in asked.rows(column)}
        assert None not in rows
        assert len(rows) == len(PAPER["table1"][f"{scenario}-incremental"])
    assert asked.seeds == (0, 1, 2)
    assert asked.reference == Variant("er")


@pytest.mark.parametrize("dataset", ["cifar10", "cifar100", "mini-imagenet"])
def test_settings_are_the_papers(dataset: str) -> None:
    asked = plan("table1", datasets=[dataset], seeds=[7])
    for variant, column, config in asked.configs():
        joint = variant.method == "multi-task"
        assert config.seed == 7
        assert config.dataset == dataset
        assert config.stream.examples_per_class == ALL["examples_per_class"]
        assert config.stream.batch_size == ALL["batch"]
        assert config.method.fields["lr"] == ALL["lr"]
        assert config.method.fields.get("replay", ALL["replay"]) == ALL["replay"]
        assert config.evaluation.every == "end"
        assert config.evaluation.images is None
        assert (config.stream.joint is not None) == joint
        if variant.method != "sgd":
            assert config.memory_per_class == ALL[f"memory_per_class_{column.scenario}_incremental"]
            assert config.scenario == column.scenario
        if joint:
            epochs = PAPER["hyperparameters"]["Multi-Task epochs"]
            assert config.stream.epochs == epochs[f"{column.scenario}-incremental"]
        if variant.method == "esmer":
            spent = PAPER["hyperparameters"]["ESMER memory reduction (100-class datasets)"]
            expected = 0 if dataset == "cifar10" else spent
            assert config.method.fields["memory_reduction"] == expected


def test_one_run_serves_several_cells_where_it_can() -> None:
    asked = plan("table1", methods=["sgd", "multi-task", "er"], seeds=[0])
    names: dict[str, set[str]] = {}
    for variant, _, config in asked.configs():
        names.setdefault(variant.method, set()).add(config.name())
    assert {method: len(found) for method, found in names.items()} == {
        "sgd": 2,  # one for each stream
        "multi-task": 3,  # with tasks one for each stream, without tasks one
        "er": 4,
    }


def test_the_ablation_is_task_incremental() -> None:
    asked = plan("ablation", datasets=["cifar100"])
    assert {column.scenario for column in asked.columns} == {"task"}
    rows = [asked.paper(variant, asked.columns[0]) for variant in asked.variants]
    assert None not in rows
    assert len(rows) == len(PAPER["table2_ablation_task_incremental"])


def test_memory_sizes_are_the_papers() -> None:
    asked = plan("memory-size")
    sizes = PAPER["memory_size_cifar100_shifting_window_task_incremental"]
    assert [column.memory for column in asked.columns] == sizes["columns"]
    assert {(c.dataset, c.stream, c.scenario) for c in asked.columns} == {
        ("cifar100", "shifting-window", "task")
    }
    assert len(asked.variants) == len(sizes["rows"])
    for variant, column, config in asked.configs():
        assert (config.memory, config.memory_per_class) == (column.memory, None)
        assert asked.paper(variant, column) is not None


def test_shift_is_recorded_for_all_and_only_there() -> None:
    (column,) = plan("shift").columns
    assert column == Column("cifar100", "disjoint", "task")
    assert {c.evaluation.shift_images for _, _, c in plan("shift", seeds=[0]).configs()} == {500}
    assert {c.evaluation.shift_images for _, _, c in plan("ablation", seeds=[0]).configs()} == {
        None
    }


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_quick_look_is_small_and_never_beside_the_paper(name: str) -> None:
    asked = plan(name, quick=True)
    assert {column.dataset for column in asked.columns} == {"digits"}
    assert all(config.stream.examples_per_class == 50 for _, _, config in asked.configs())
    for dataset in ("digits", "cifar100"):
        other = plan(name, datasets=[dataset], quick=True)
        cells = [(v, c) for c in other.columns for v in other.rows(c)]
        assert all(other.paper(*cell) is None for cell in cells)


def test_the_frontier_has_all_online_methods_scored_after_every_task() -> None:
    asked = plan("frontier", seeds=[0])
    (column,) = asked.columns
    assert column == Column("cifar10", "disjoint", "class")
    without = {"multi-task", "packnet", "deepccg-reservoir", "deepccg-standard-head"}
    assert {variant.method for variant in asked.variants} == METHODS.keys() - without
    for variant, _, config in asked.configs():
        assert config.evaluation.every == "task"
        assert asked.paper(variant, column) is None


def test_methods_can_be_chosen_with_their_preset() -> None:
    asked = plan("table1", methods=["deepccg@paper", " sgd "], seeds=[0])
    assert asked.variants == (Variant("deepccg", "paper"), Variant("sgd"))
    assert asked.reference == asked.variants[0]
    config = asked.config(asked.variants[0], asked.columns[0], 0)
    assert (config.preset, config.method.fields["reduction"]) == ("paper", "sum")


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("table2", {}, "choose one of table1, ablation, memory-size, shift, frontier"),
        ("table1", {"methods": ["erace"]}, "unknown method 'erace'"),
        ("table1", {"methods": ["er@best"]}, "METHOD@PRESET with one of"),
        ("memory-size", {"datasets": ["hf:owner/name"]}, "needs a data set from"),
        ("memory-size", {"datasets": ["my_folder"]}, "unknown data set 'my_folder'"),
        ("table1", {"datasets": ["cifar1O"]}, r"'cifar1O' \(did you mean cifar10\?\)"),
        ("table1", {"shift_images": 3}, "--shift-images is for shift: table1 follows no images"),
        ("shift", {"methods": ["multi-task"]}, "no shift to record"),
    ],
)
def test_what_is_not_an_experiment_is_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan(name, **options)


def test_a_folder_goes_by_the_name_that_its_runs_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pets").mkdir()
    monkeypatch.chdir(tmp_path)
    assert {column.dataset for column in plan("ablation", datasets=["pets"]).columns} == {"pets"}
    for path in (str(tmp_path / "pets"), "pets/", "./pets"):
        with pytest.raises(InputError, match=f"go to {tmp_path} and give --dataset pets"):
            plan("ablation", datasets=[path])
