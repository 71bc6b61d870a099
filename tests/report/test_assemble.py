"""Recorded runs get the current defaults; what differs from the presets is in the label."""

import csv
import re
import shutil
import sys
from pathlib import Path

import pytest

from deepccg.cli import main
from deepccg.experiment import PRESETS, resolve
from deepccg.records import ClassScore, Evaluation, TaskScore, paper_cell
from deepccg.report import RowDetails, Run, group_runs, report_page
from deepccg.report.assemble import with_current_defaults
from deepccg.report.tables import results_table

SCORE = Evaluation(
    step=10,
    examples=100,
    task=0,
    final=True,
    images=100,
    of_images=100,
    tasks=(TaskScore(0, (0, 1), 100, 50, 50),),
    classes=(ClassScore(0, 50, 25, 25.0), ClassScore(1, 50, 25, 25.0)),
)
CIFAR = {"dataset": "cifar10", "stream": "disjoint", "scenario": "task"}
LATER = ("stream.epochs", "method.posterior", "method.sample", "network.remap")


def recorded(method: str, without=(), **settings) -> Run:
    """As a run directory has it; ``without`` the fields that an earlier version did not have."""
    config = resolve({**CIFAR, "method": method, **settings})
    fields = config.model_dump(mode="json", exclude_none=True)
    for name in without:
        table, _, field = name.partition(".")
        fields[table].pop(field, None)
    return Run(Path(f"runs/{method}-{config.seed}-{len(without)}"), fields, (SCORE,))


def only_row(*runs: Run):
    (comparison,) = group_runs(map(with_current_defaults, runs))
    (row,) = comparison.rows
    return comparison, row


@pytest.mark.parametrize(
    ("method", "later"), [("deepccg", LATER), ("er", LATER), ("multi-task", ("network.remap",))]
)
def test_older_runs_are_seeds_of_the_same_row(method, later):
    _, row = only_row(recorded(method, later, seed=0), recorded(method, seed=1))
    assert list(row.runs) == [0, 1]
    assert "=" not in row.label


@pytest.mark.parametrize("without", [(), ("method.posterior",)], ids=str)
def test_a_run_of_an_earlier_preset_is_another_row(without):
    cifar100 = {"dataset": "cifar100", "method.mean_gradient": False, "method.posterior": "exact"}
    then, now = recorded("deepccg", without, **cifar100), recorded("deepccg", dataset="cifar100")
    (comparison,) = group_runs(map(with_current_defaults, (then, now)))
    labels = {row.label: comparison.paper(row) is not None for row in comparison.rows}
    assert labels == {"DeepCCG (mean_gradient=False, posterior=exact)": False, "DeepCCG": True}


def test_a_run_of_a_removed_preset_is_told_by_the_one_that_comes_nearest():
    run = recorded("deepccg", preset="paper", **{"method.mean_gradient": False})
    run.config["preset"] = "as-printed"
    _, row = only_row(run)
    assert row.label == "DeepCCG (paper, mean_gradient=False)"


def test_an_older_run_of_the_same_seed_is_not_another_seed():
    older, newer = recorded("er", LATER), recorded("er", kernels="native")
    followed = recorded("er", **{"evaluation.shift_images": 10})
    comparison, row = only_row(followed, newer, older)
    assert row.first.path == min(older.path, newer.path)
    assert len(row.first.others) == 2
    page = report_page([comparison], {row.key: RowDetails("deepccg run", {}, "not asked for")})
    assert page.count("the same run again: not counted") == 2


def test_a_users_method_stays_as_recorded():
    run = recorded("er")
    run.config["method"] = {"name": "my.module:Nearest", "k": 3}
    assert with_current_defaults(run) is run


def test_the_earlier_name_still_works():
    sys.modules.pop("deepccg.cli.completing", None)
    with pytest.warns(DeprecationWarning, match=r"deepccg\.report\.assemble"):
        from deepccg.cli.completing import completed
    assert completed is with_current_defaults


@pytest.mark.parametrize("name", [["er"], None, "er"])
def test_a_configuration_of_another_version_stays_as_recorded(name):
    run = recorded("er")
    run.config["method"] = {"name": name, "no_such_field": 1}
    assert with_current_defaults(run) is run


@pytest.mark.parametrize("method", ["deepccg", "er", "ewc", "multi-task"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_has_no_fields_in_its_label_and_the_papers_number(method, preset):
    comparison, row = only_row(recorded(method, preset=preset))
    assert "=" not in row.label
    assert (preset in row.label) == (preset != "default")
    assert comparison.paper(row) == paper_cell("cifar10", "disjoint", "task", method)


@pytest.mark.parametrize(
    ("settings", "label"),
    [
        ({"method.lr": 0.5, "method.replay": 40}, "ER (lr=0.5, replay=40)"),
        ({"stream.batch_size": 50}, "ER (stream.batch_size=50)"),
        ({"network.width": 40}, "ER (network.width=40)"),
        (
            {"stream.joint": "tasks", "stream.epochs": 2},
            "ER (stream.joint=tasks, stream.epochs=2)",
        ),
    ],
    ids=str,
)
def test_changes_are_in_the_label_and_have_no_number_of_the_paper(settings, label):
    comparison, row = only_row(recorded("er", **settings))
    assert row.label == label
    assert comparison.paper(row) is None


def test_how_often_a_run_was_scored_is_no_difference():
    comparison, row = only_row(recorded("er", **{"evaluation.every": "end"}))
    assert row.label == "ER"
    assert comparison.paper(row) is not None


def test_a_preset_file_is_named_with_what_it_changed(tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text("[[rule]]\nset = { method = { lr = 0.01 } }\n")
    comparison, row = only_row(recorded("er", preset=str(preset)))
    assert row.label == "ER (file:mine.toml, lr=0.01)"
    assert comparison.paper(row) is None


def test_a_reconstruction_is_called_one_in_every_form():
    comparison, _ = only_row(recorded("entropy-ss"))
    table = results_table(comparison)
    for text in (table.markdown(), table.latex(), table.csv()):
        assert "EntropySS (reconstruction)" in text
        assert text.count("reconstruction") == 1


def leave(monkeypatch, *arguments: object) -> object:
    """What the program ends with."""
    monkeypatch.setattr(sys, "argv", ["deepccg", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


@pytest.mark.slow
def test_the_command_completes_what_it_reads(runs, tmp_path, monkeypatch):
    for seed in (0, 1):
        shutil.copytree(runs / "deepccg" / f"seed-{seed}", tmp_path / "runs" / f"seed-{seed}")
    older = tmp_path / "runs" / "seed-0" / "config.toml"
    without = re.sub(r"(?m)^(epochs|posterior|sample) = .*\n", "", older.read_text())
    assert without != older.read_text()
    older.write_text(without)
    out = ("--out", tmp_path / "page.html", "--export", tmp_path / "files")
    assert leave(monkeypatch, "report", tmp_path / "runs", *out) in (None, 0)
    (results,) = (tmp_path / "files").glob("*-results.csv")
    (line,) = csv.DictReader(results.open(encoding="utf-8"))
    assert (line["Method"], line["Seeds"]) == ("DeepCCG", "2")


def test_a_directory_as_target_is_one_line(runs, tmp_path, monkeypatch, capsys):
    assert leave(monkeypatch, "report", runs / "er", "--out", tmp_path) == 2
    said = capsys.readouterr().err
    assert said == f"Error: {tmp_path} is a directory: give --out the name of a file\n"
    assert not list(tmp_path.iterdir())
