"""Recorded runs beside the presets: older ones are completed, changed ones are told apart."""

import csv
import re
import shutil
import sys
from pathlib import Path

import pytest

from deepccg.cli import main
from deepccg.cli.completing import completed
from deepccg.experiment import PRESETS, resolve
from deepccg.records import ClassScore, Evaluation, TaskScore, paper_cell
from deepccg.report import About, Run, grouped, report_page
from deepccg.report.sheets import results_sheet

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
LATER = ("stream.epochs", "method.posterior", "method.refresh", "method.max_age", "network.remap")


def recorded(method: str, without=(), **settings) -> Run:
    """As a run directory has it; ``without`` the fields that an earlier version did not have."""
    config = resolve({**CIFAR, "method": method, **settings})
    fields = config.model_dump(mode="json", exclude_none=True)
    for name in without:
        table, _, field = name.partition(".")
        fields[table].pop(field, None)
    return Run(Path(f"runs/{method}-{config.seed}-{len(without)}"), fields, (SCORE,))


def only_row(*runs: Run):
    (setting,) = grouped(map(completed, runs))
    (row,) = setting.rows
    return setting, row


@pytest.mark.parametrize(
    ("method", "later"), [("deepccg", LATER), ("er", LATER), ("multi-task", ("network.remap",))]
)
def test_older_runs_are_seeds_of_the_same_row(method, later):
    _, row = only_row(recorded(method, later, seed=0), recorded(method, seed=1))
    assert list(row.runs) == [0, 1]
    assert "=" not in row.label


@pytest.mark.parametrize("without", [(), ("method.posterior",)], ids=str)
def test_a_run_of_what_was_the_preset_then_is_told_apart(without):
    cifar100 = {"dataset": "cifar100", "method.mean_gradient": False, "method.posterior": "exact"}
    then, now = recorded("deepccg", without, **cifar100), recorded("deepccg", dataset="cifar100")
    (setting,) = grouped(map(completed, (then, now)))
    labels = {row.label: setting.paper(row) is not None for row in setting.rows}
    assert labels == {"DeepCCG (mean_gradient=False, posterior=exact)": False, "DeepCCG": True}


def test_an_older_run_of_the_same_seed_is_not_another_seed():
    older, newer = recorded("er", LATER), recorded("er", kernels="native")
    followed = recorded("er", **{"evaluation.shift_images": 10})
    setting, row = only_row(followed, newer, older)
    assert row.first.path == min(older.path, newer.path)
    assert len(row.first.others) == 2
    page = report_page([setting], {row.key: About("deepccg run", {}, "not asked for")})
    assert page.count("the same run again: not counted") == 2


def test_a_method_of_ones_own_stays_as_recorded():
    run = recorded("er")
    run.config["method"] = {"name": "my.module:Nearest", "k": 3}
    assert completed(run) is run


@pytest.mark.parametrize("name", [["er"], None, "er"])
def test_what_this_version_does_not_take_stays_as_recorded(name):
    run = recorded("er")
    run.config["method"] = {"name": name, "no_such_field": 1}
    assert completed(run) is run


@pytest.mark.parametrize("method", ["deepccg", "er", "ewc", "multi-task"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_a_name_without_fields_and_with_the_papers_number(method, preset):
    setting, row = only_row(recorded(method, preset=preset))
    assert "=" not in row.label
    assert (preset in row.label) == (preset != "default")
    assert setting.paper(row) == paper_cell("cifar10", "disjoint", "task", method)


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
def test_what_is_not_the_papers_is_named_and_stands_alone(settings, label):
    setting, row = only_row(recorded("er", **settings))
    assert row.label == label
    assert setting.paper(row) is None


def test_how_often_a_run_was_scored_is_no_difference():
    setting, row = only_row(recorded("er", **{"evaluation.every": "end"}))
    assert row.label == "ER"
    assert setting.paper(row) is not None


def test_a_preset_file_is_told_with_what_it_changed(tmp_path):
    preset = tmp_path / "mine.toml"
    preset.write_text("[[rule]]\nset = { method = { lr = 0.01 } }\n")
    setting, row = only_row(recorded("er", preset=str(preset)))
    assert row.label == "ER (file:mine.toml, lr=0.01)"
    assert setting.paper(row) is None


def test_a_reconstruction_is_called_one_in_every_form():
    setting, _ = only_row(recorded("entropy-ss"))
    sheet = results_sheet(setting)
    for text in (sheet.markdown(), sheet.latex(), sheet.csv()):
        assert "EntropySS (reconstruction)" in text
        assert text.count("reconstruction") == 1


def leave(monkeypatch, *arguments: object) -> object:
    """What the program ends with."""
    monkeypatch.setattr(sys, "argv", ["deepccg", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


def test_the_command_completes_what_it_reads(runs, tmp_path, monkeypatch):
    for seed in (0, 1):
        shutil.copytree(runs / "deepccg" / f"seed-{seed}", tmp_path / "runs" / f"seed-{seed}")
    older = tmp_path / "runs" / "seed-0" / "config.toml"
    without = re.sub(r"(?m)^(epochs|posterior|refresh|max_age) = .*\n", "", older.read_text())
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
