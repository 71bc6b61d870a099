"""``deepccg reproduce``."""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from deepccg.experiment import run
from deepccg.records import RunDirectory, summary
from deepccg.reproduce import plan


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of a quick look at shift, made by other means."""
    place = tmp_path_factory.mktemp("runs")
    asked = plan("shift", methods=["er", "sgd"], seeds=[0, 1, 2], quick=True)
    for _, _, config in asked.configs():
        run(config, place / f"{config.method.name}-{config.seed}")
    return place


def test_ours_stands_in_a_table_with_paired_differences(deepccg, runs: Path) -> None:
    words = ("reproduce", "shift", "--quick", "--methods", "er,sgd", "--seeds", "0-2")
    done = deepccg(*words, "--out", str(runs))
    assert done.code == 0, done.err
    assert "NOT the paper's experiment" in done.words
    assert "Minus ER [95 %]" in done.words
    assert "signific" not in done.words
    with (runs / "shift-digits-quick.csv").open() as file:
        er, sgd = csv.DictReader(file)
    values = {name: accuracies(runs, name) for name in ("er", "sgd")}
    assert float(er["accuracy"]) == pytest.approx(np.mean(values["er"]), abs=1e-3)
    assert float(sgd["standard_error"]) == pytest.approx(stats.sem(values["sgd"]), abs=1e-3)
    interval = stats.ttest_rel(values["sgd"], values["er"]).confidence_interval(0.95)
    assert float(sgd["difference_low"]) == pytest.approx(interval.low, abs=1e-3)
    assert float(sgd["difference_high"]) == pytest.approx(interval.high, abs=1e-3)
    assert (er["paper_accuracy"], er["difference"], er["paired_seeds"]) == ("", "", "0")
    assert (runs / "shift-digits-quick.png").read_bytes().startswith(b"\x89PNG")
    assert (runs / "shift-digits-quick.pdf").read_bytes().startswith(b"%PDF")
    assert "| SGD |" in (runs / "shift-digits-quick.md").read_text()


def accuracies(runs: Path, name: str) -> list[float]:
    """In percent, by seed."""
    found = [RunDirectory(runs / f"{name}-{seed}").evaluations() for seed in range(3)]
    return [100 * (summary(each)["task_accuracy"] or 0) for each in found]


def test_a_dry_run_says_what_is_missing_and_writes_nothing(deepccg, runs: Path) -> None:
    before = sorted(runs.iterdir())
    words = ("reproduce", "shift", "--quick", "--methods", "er,deepccg", "--seeds", "0-3")
    done = deepccg(*words, "--out", str(runs), "--dry-run")
    assert done.code == 0, done.err
    assert (
        "5 runs are missing (about 1 minute on one core). This" in done.err
    )  # ER's fourth seed and DeepCCG's four
    again = f"deepccg {' '.join(word for word in words if word != '--quick')} --out {runs} --quick"
    assert again in done.err
    assert sorted(runs.iterdir()) == before


@pytest.mark.slow  # starts a process
def test_what_is_missing_is_run(deepccg, tmp_path: Path) -> None:
    words = ("reproduce", "ablation", "--quick", "--methods", "sgd", "--seeds", "0", "-j", "1")
    done = deepccg(*words, "--out", str(tmp_path))
    assert done.code == 0, done.err
    assert "are missing" not in done.err
    assert len(list(tmp_path.glob("*/seed-0/records.jsonl"))) == 2  # both streams
    again = deepccg(*words, "--out", str(tmp_path))
    assert "begins" not in again.err


def test_an_unknown_experiment_is_one_line(deepccg) -> None:
    done = deepccg("reproduce", "table9")
    assert done.code == 2
    assert "choose one of table1, ablation, memory-size, shift, frontier" in done.err


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--dataset", "cifar1O"), "did you mean cifar10?"),
        (("--dataset", "cifar10,nowhere"), "unknown data set 'nowhere'"),
        (("--shift-images", "3"), "--shift-images is for shift"),
    ],
)
def test_what_makes_no_experiment_is_one_line_before_anything(
    deepccg, place: Path, words, message: str, dry
) -> None:
    done = deepccg("reproduce", "table1", *words, *dry)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert message in done.err
    assert not list(place.iterdir())


@pytest.mark.slow  # four runs, each in a process
def test_the_frontier_tells_accuracy_beside_what_it_cost(deepccg, tmp_path: Path) -> None:
    words = ("reproduce", "frontier", "--quick", "--methods", "er,sgd", "--seeds", "0,1")
    done = deepccg(*words, "--out", str(tmp_path), "-j", "1")
    assert done.code == 0, done.err
    table = (tmp_path / "frontier-digits-quick.md").read_text()
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("|")]
    cells = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows}
    costs = ["Passes per example", "Passes per query", "Seconds", "Stored bytes", "Seeds"]
    assert cells["Method"][2:] == costs
    assert cells["SGD"][2] == "3.0"  # each example once forward, and once backward, which is two
    assert float(cells["ER"][2]) == pytest.approx(6, abs=0.15)  # and as many stored ones
    assert (cells["SGD"][3], cells["SGD"][5:]) == ("1", ["0", "2"])
    first = accuracies_over_time(tmp_path, "er")
    assert float(cells["ER"][1].strip("*").split()[0]) == pytest.approx(first, abs=0.06)
    for name in ("passes", "seconds"):
        drawn = tmp_path / f"frontier-digits-quick-cost-{name}.png"
        assert drawn.read_bytes().startswith(b"\x89PNG")


def accuracies_over_time(runs: Path, method: str) -> float:
    """The share of right answers at the ends of tasks, mean over these and seeds, in percent."""
    means = []
    for place in runs.glob(f"*-{method}-*/seed-*"):
        shares = [
            sum(score.class_correct for score in each.classes) / each.images
            for each in RunDirectory(place).evaluations()
        ]
        means.append(100 * np.mean(shares))
    return float(np.mean(means))
