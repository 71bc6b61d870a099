"""Which runs share a table, a row and a name, and which of the paper's numbers stands beside."""

from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepccg.experiment import parse_seeds
from deepccg.records import (
    ClassScore,
    Evaluation,
    RecordError,
    RunDirectory,
    Shift,
    TaskScore,
    append_record,
    paper_value,
)
from deepccg.report import Run, group_runs, read_run, seeds_text


def evaluation(correct: int = 50, *, final: bool = True) -> Evaluation:
    return Evaluation(
        step=10,
        examples=100,
        task=0,
        final=final,
        images=100,
        of_images=100,
        tasks=(TaskScore(0, (0, 1), 100, correct, correct),),
        classes=(ClassScore(0, 50, correct // 2, 25.0), ClassScore(1, 50, correct // 2, 25.0)),
    )


def run(method="er", seed=0, shifts=(), *, stream=None, evaluation_fields=None, **fields) -> Run:
    config = {
        "dataset": "cifar10",
        "scenario": "task",
        "preset": "default",
        "memory_per_class": 10,
        "seed": seed,
        "threads": 1,
        "stream": {"kind": "disjoint", "examples_per_class": 500, **(stream or {})},
        "method": {"name": method, "lr": 0.1},
        "evaluation": {"every": "task", **(evaluation_fields or {})},
    }
    config |= fields
    if config.get("memory") is not None:
        del config["memory_per_class"]
    path = Path("runs") / method / f"seed-{seed}"
    return Run(path, config, (evaluation(),), tuple(shifts), as_preset=True)


def test_seeds_are_one_row_and_methods_one_table():
    runs = [run("sgd", 1), run("er", 1), run("er", 0, threads=2), run("deepccg", 0)]
    (comparison,) = group_runs(runs)
    assert [row.label for row in comparison.rows] == ["DeepCCG", "ER", "SGD"]
    assert list(comparison.rows[1].runs) == [0, 1]
    assert len({row.key for row in comparison.rows}) == 3


@pytest.mark.parametrize(
    "other",
    [
        {"dataset": "cifar100"},
        {"scenario": "class"},
        {"memory_per_class": 5},
        {"memory": 100},
        {"stream": {"kind": "shifting-window"}},
        {"stream": {"examples_per_class": 20}},
        {"stream": {"classes_per_task": 5}},
        {"evaluation_fields": {"validation": 0.1}},
        {"evaluation_fields": {"images": 10}},
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_another_table(other):
    comparisons = group_runs([run(), run(**other)])
    assert len(comparisons) == 2
    assert len({comparison.key for comparison in comparisons}) == 2
    assert len({f"{comparison.title} {comparison.subtitle}" for comparison in comparisons}) == 2


def test_the_line_below_a_title_does_not_repeat_it():
    large, small = group_runs([run(memory_per_class=10), run(memory_per_class=5)])
    assert (small.title.partition(", memory")[2], small.rest) == (" 5 per class", "")
    assert large.subtitle == "memory 10 per class"
    (only,) = group_runs([run()])
    assert only.rest == only.subtitle == "memory 10 per class"


def test_known_data_come_first_and_tasks_before_classes():
    runs = [
        run(dataset="zebras"),
        run(dataset="cifar100"),
        run(dataset="cifar10", scenario="class"),
        run(dataset="cifar10"),
        run(dataset="digits"),
    ]
    titles = [comparison.title for comparison in group_runs(runs)]
    assert [title.split(",")[0] for title in titles] == [
        "Digits", "CIFAR-10", "CIFAR-10", "CIFAR-100", "zebras",
    ]  # fmt: skip
    assert titles[1].endswith("task-incremental")


def test_variants_of_a_method_have_different_labels():
    slow = run()
    slow.config["method"]["lr"] = 0.01
    (comparison,) = group_runs([run(), run(preset="paper"), run(seed=1), slow])
    assert {row.label for row in comparison.rows} == {"ER (lr=0.01)", "ER (lr=0.1)", "ER (paper)"}
    assert len({row.key for row in comparison.rows}) == 3


def test_what_differs_from_the_preset_is_in_the_label():
    changed = replace(run(), changes={"method.lr": 0.5, "network.width": 40})
    (comparison,) = group_runs([changed, run("sgd")])
    assert [row.label for row in comparison.rows] == ["ER (lr=0.5, network.width=40)", "SGD"]


def test_the_preset_itself_comes_before_its_variants():
    variants = []
    for lr in (0.2, 0.3, 0.4, 0.5, 0.6):
        variants.append(replace(run(), changes={"method.lr": lr}))
        variants[-1].config["method"]["lr"] = lr
    both = replace(run(), changes={"method.lr": 0.2, "network.width": 40})
    both.config["method"]["lr"], both.config["network"] = 0.2, {"width": 40}
    (comparison,) = group_runs([both, *variants, run()])
    assert [len(row.runs[0].changes) for row in comparison.rows] == [0, 1, 1, 1, 1, 1, 2]


def test_the_same_experiment_and_seed_counts_once():
    """The run that only learned and was scored, and the first path; shifts are not lost."""
    shift = Shift(20, 1, "task", 10, 0.5, 1.0, 5, 6, 4)
    fields = {"evaluation_fields": {"shift_images": 10}, "shifts": [shift]}
    followed = replace(run(**fields), path=Path("a"), evaluations=(evaluation(10),))
    first, second = replace(run(), path=Path("b")), replace(run(kernels="torch"), path=Path("c"))
    for runs in permutations([followed, first, second]):
        (comparison,) = group_runs(runs)
        (row,) = comparison.rows
        assert row.runs == {0: replace(first, shifts=(shift,), others=(Path("c"), Path("a")))}


@pytest.mark.parametrize(
    ("fields", "table"),
    [
        ({}, "table1"),
        ({"memory": 100}, "table1"),
        ({"method": "deepccg-reservoir"}, "ablation"),
        (
            {"dataset": "cifar100", "memory": 750, "stream": {"kind": "shifting-window"}},
            "memory-size",
        ),
        ({"memory": 99}, None),
        ({"memory_per_class": 30}, None),
        ({"scenario": "class"}, None),
        ({"stream": {"examples_per_class": 100}}, None),
        ({"stream": {"classes_per_task": 5}}, None),
        ({"evaluation_fields": {"validation": 0.1}}, None),
        ({"evaluation_fields": {"images": 100}}, None),
        ({"dataset": "digits"}, None),
    ],
    ids=str,
)
def test_the_papers_number_stands_only_beside_the_same_question(fields, table):
    (comparison,) = group_runs([run(**fields)])
    found = comparison.paper(comparison.rows[0])
    if table is None:
        assert found is None
        return
    where = (comparison.dataset, comparison.stream, comparison.scenario, comparison.rows[0].method)
    assert found == paper_value(table, *where, memory=fields.get("memory"))
    assert found is not None


def test_the_papers_number_needs_a_run_as_a_preset():
    (comparison,) = group_runs([replace(run(), as_preset=False)])
    assert comparison.paper(comparison.rows[0]) is None


@given(st.sets(st.integers(0, 60), min_size=1))
def test_seeds_as_the_command_line_takes_them(seeds):
    assert parse_seeds(seeds_text(seeds)) == sorted(seeds)


def test_an_unfinished_run_is_none_and_a_malformed_one_an_error(tmp_path):
    (tmp_path / "config.toml").write_text('[method]\nname = "er"\n[stream]\n[evaluation]\n')
    directory = RunDirectory(tmp_path)
    assert read_run(directory) is None
    append_record(directory.records_path, evaluation(final=False))
    assert read_run(directory) is None
    append_record(directory.records_path, evaluation())
    found = read_run(directory)
    assert len(found.evaluations) == 2
    (tmp_path / "audit.json").write_text("[1, 2")
    assert read_run(directory).audit is None
    (tmp_path / "config.toml").write_text('method = "er"\n')
    with pytest.raises(RecordError, match="no table 'stream'"):
        read_run(directory)
