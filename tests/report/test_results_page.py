"""docs/results.md and docs/results/ say what the archived runs say, in tables and sentences."""

import importlib
import json
import re
import sys
from pathlib import Path
from statistics import fmean

import pytest
from scipy.stats import ttest_rel

from deepccg.records import append_to_archive, find_runs, write_directories

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not BENCHMARKS.is_dir(), reason="NOT RUN: there is no benchmarks directory beside the tests"
    ),
]


@pytest.fixture(scope="module")
def results():
    sys.path.insert(0, str(BENCHMARKS))
    yield importlib.import_module("results")
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def runs(results):
    return results.load_runs()


def last_accuracies(method: str) -> dict[int, float]:
    """Percent right of CIFAR-10, disjoint, class-incremental, from the archive's bare lines."""
    found = {}
    for line in (BENCHMARKS / "runs.jsonl").read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if not run["run"].startswith(f"cifar10-disjoint-class-{method}-default-"):
            continue
        assert "validation" not in run["config"]["evaluation"]
        (last,) = (record for record in run["records"] if record.get("final"))
        right = sum(task["class_correct"] for task in last["tasks"])
        found[run["config"]["seed"]] = 100 * right / last["images"]
    return found


def test_the_archives_hold_finished_runs_that_come_back_from_directories(tmp_path):
    runs = find_runs([BENCHMARKS / "runs.jsonl", BENCHMARKS / "shift.jsonl.gz"])
    assert len(runs) >= 401
    for run in runs:
        assert run.finished
        assert run.path.name == f"seed-{run.config()['seed']}"
    some = runs[::40]
    write_directories(some, tmp_path / "runs")
    append_to_archive(tmp_path / "runs.jsonl", find_runs([tmp_path / "runs"]))
    again = find_runs([tmp_path / "runs.jsonl"])
    assert {run.line for run in again} == {run.line for run in some}


def test_the_pages_are_what_templates_and_records_give(results, runs, tmp_path):
    docs = ROOT / "docs"
    pages = results.pages(runs, tmp_path)
    written = {"results.md", *(f"results/{each.name}" for each in docs.glob("results/*.md"))}
    assert set(pages) == written
    for path, text in pages.items():
        assert text == (docs / path).read_text(encoding="utf-8"), f"{path}: run make results"


def test_the_numbers_of_a_sentence_are_those_of_the_records(results, runs):
    derpp, er = last_accuracies("derpp"), last_accuracies("er")
    seeds = sorted(derpp)
    assert seeds == sorted(er)
    assert len(seeds) >= 3
    ours, theirs = ([each[seed] for seed in seeds] for each in (derpp, er))
    low, high = ttest_rel(ours, theirs).confidence_interval()
    text = "{{accuracy W derpp}}; {{from-paper W derpp}}; {{minus W derpp er}}; "
    text += "{{paper-minus W derpp er}}; {{accuracy W deepccg@paper}}"
    found = results.filled(text.replace("W", "cifar10 disjoint class"), runs, Path())
    paper_derpp, paper_er = 15.37, 16.29
    expected = [
        fmean(ours),
        fmean(ours) - paper_derpp,
        *(fmean(ours) - fmean(theirs), low, high),
        paper_derpp - paper_er,
    ]
    *numbers, other_preset = re.findall(r"[-+]?\d+\.\d", found)
    assert list(map(float, numbers)) == pytest.approx(expected, abs=0.0501)  # shown with a decimal
    assert other_preset != results.filled(
        "{{accuracy cifar10 disjoint class deepccg}}", runs, Path()
    )


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("{{accuracy cifar10 disjoint class nobody}}", "there is no run of cifar10 disjoint"),
        (
            "{{paper-minus cifar10 disjoint class packnet er}}",
            "the paper has no number for cifar10",
        ),
        ("{{minus cifar10 disjoint task er nobody}}", "er and nobody have no seed in common"),
    ],
)
def test_a_sentence_about_what_was_not_run_is_refused(results, runs, place, told):
    with pytest.raises(ValueError, match=told):
        results.filled(f"It is {place} here.", runs, Path())
