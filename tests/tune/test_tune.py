"""Choosing on held-out training data, with real runs."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from deepccg.core import InputError, ProtocolViolation
from deepccg.experiment import resolve, run
from deepccg.records import RunDirectory, summary
from deepccg.streams import Dataset, Split, load_dataset
from deepccg.sweep import Job, Outcome
from deepccg.tune import Choice, Range, Trial, Tuned, preset_text, trials_json, tune

SETTINGS = {
    "method.name": "sgd",
    "dataset": "digits",
    "stream.kind": "disjoint",
    "scenario": "task",
    "stream.examples_per_class": 20,
}
RunAll = Callable[[list[Job]], list[Outcome]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))


def poisoned() -> Dataset:
    """Digits whose test part cannot be opened."""

    def open_test() -> Split:
        raise AssertionError("the test part was opened")

    digits = load_dataset("digits")
    return Dataset("digits", digits.class_names, lambda: digits.train, open_test)


@pytest.fixture
def run_here(tmp_path: Path) -> RunAll:
    """Does runs in this process."""

    def run_all(jobs: list[Job]) -> list[Outcome]:
        outcomes = []
        for job in jobs:
            result = run(job.config, tmp_path / "runs" / job.name, data=poisoned())
            outcomes.append(Outcome(job, result.directory, "finished"))
        return outcomes

    return run_all


def test_the_winner_has_the_highest_held_out_accuracy(tmp_path: Path, run_here: RunAll) -> None:
    axes = [Choice("method.lr", (1e-6, 0.1))]
    tuned = tune(SETTINGS, axes, run_here, seeds=[0, 1], validation=0.2)
    assert [dict(trial.point) for trial in tuned.trials] == [
        {"method.lr": 1e-6},
        {"method.lr": 0.1},
    ]
    assert tuned.best is tuned.trials[1]
    by_hand: dict[float, list[float]] = {}
    for directory in sorted((tmp_path / "runs").glob("*/seed-*")):
        target = RunDirectory(directory)
        config, audit = target.config(), json.loads(target.audit_path.read_text())
        assert config["evaluation"]["validation"] == 0.2
        assert audit["test"]["opened"] is False
        (final,) = target.evaluations()
        assert final.images == 40  # 4 of the 20 of each class
        value = summary([final])["task_accuracy"]
        assert value is not None
        by_hand.setdefault(config["method"]["lr"], []).append(value)
    for trial in tuned.trials:
        assert list(trial.scores.values()) == by_hand[trial.point["method.lr"]]
        assert trial.accuracy is not None
        assert trial.accuracy.mean == pytest.approx(sum(trial.scores.values()) / 2)


def test_finished_trials_are_not_repeated(run_here: RunAll) -> None:
    axes = [Range("method.lr", 1e-3, 1.0, "log")]
    done: list[str] = []

    def counting(jobs: list[Job]) -> list[Outcome]:
        done.extend(job.name for job in jobs)
        return run_here(jobs)

    short = tune(SETTINGS, axes, counting, seeds=[0], search="optuna", trials=2)
    longer = tune(SETTINGS, axes, counting, seeds=[0], search="optuna", trials=3)
    assert short.trials == longer.trials[:2]
    assert done[:2] == done[2:4]  # the same directories: they are read back


def test_a_run_that_opened_the_test_part_is_rejected(run_here: RunAll) -> None:
    def cheating(jobs: list[Job]) -> list[Outcome]:
        outcomes = run_here(jobs)
        path = RunDirectory(outcomes[0].directory).audit_path
        audit = json.loads(path.read_text())
        audit["test"]["opened"] = True
        path.write_text(json.dumps(audit))
        return outcomes

    axes = [Choice("method.lr", (0.1,))]
    with pytest.raises(ProtocolViolation, match="opened the test part"):
        tune(SETTINGS, axes, cheating, seeds=[0])

    def unwatched(jobs: list[Job]) -> list[Outcome]:
        outcomes = run_here(jobs)
        RunDirectory(outcomes[0].directory).audit_path.unlink()
        return outcomes

    with pytest.raises(ProtocolViolation, match="was not audited"):
        tune(SETTINGS, axes, unwatched, seeds=[0])


def test_a_point_at_which_a_run_fails_is_not_chosen(tmp_path: Path, run_here: RunAll) -> None:
    def failing(jobs: list[Job]) -> list[Outcome]:
        good = [job for job in jobs if job.config.method.fields["lr"] < 1]
        outcomes = {outcome.job.name: outcome for outcome in run_here(good)}
        bad = Outcome(jobs[-1], tmp_path, "failed", "the loss is nan at step 3")
        return [outcomes.get(job.name, bad) for job in jobs]

    axes = [Choice("method.lr", (0.1, 5.0))]
    tuned = tune(SETTINGS, axes, failing, seeds=[0])
    assert tuned.best is tuned.trials[0]
    assert tuned.trials[1].accuracy is None
    assert "failed: seed 0: the loss is nan" in preset_text([tuned], "deepccg tune")


def tried(lr: float, *scores: float) -> Trial:
    return Trial({"method.lr": lr}, dict(enumerate(scores)))


def test_ties_go_to_the_first() -> None:
    tuned = Tuned(SETTINGS, (tried(0.3, 0.5, 0.5), tried(0.1, 0.6, 0.4), tried(0.2, 0.1, 0.1)))
    assert tuned.best is tuned.trials[0]


def test_run_accepts_the_preset(tmp_path: Path) -> None:
    other = SETTINGS | {"stream.kind": "shifting-window", "scenario": "class"}
    found = [
        Tuned(SETTINGS, (tried(0.3, 0.5, 0.7), tried(0.1, 0.6, 0.4))),
        Tuned(other, (tried(0.3, 0.1), tried(0.01, 0.6))),
    ]
    path = tmp_path / "mine.toml"
    path.write_text(preset_text(found, "deepccg tune --method sgd"))
    given = {"preset": str(path), "method": "sgd", "dataset": "digits"}
    config = resolve(given)
    assert (config.method.fields["lr"], config.stream.examples_per_class) == (0.3, 20)
    config = resolve(given | {"stream": "shifting-window", "scenario": "class"})
    assert config.method.fields["lr"] == 0.01
    assert resolve(given | {"scenario": "class"}).method.fields["lr"] == 0.1  # no rule for it
    assert resolve(given | {"method": "er"}).method.fields["lr"] == 0.1
    text = path.read_text()
    assert "# * lr = 0.3: 60.00 +- 10.00" in text
    assert "#   lr = 0.1: 50.00 +- 10.00" in text
    searches = json.loads(trials_json(found, "x"))["searches"]
    assert [search["best"] for search in searches] == [{"method.lr": 0.3}, {"method.lr": 0.01}]


def test_no_preset_if_every_trial_failed() -> None:
    tuned = Tuned(SETTINGS, (Trial({"method.lr": 9.0}, {}, ("seed 0: diverged",)),))
    assert tuned.best is None
    with pytest.raises(InputError, match="every trial failed, the first with: seed 0: diverged"):
        preset_text([tuned], "x")


@pytest.mark.parametrize(
    ("axes", "options", "message"),
    [
        ([], {}, "nothing to choose"),
        ([Choice("method.lrr", (1,))], {}, "did you mean lr"),
        ([Choice("method.lr", (0.1, -1))], {}, "method.lr should be greater than 0"),
        ([Range("method.lr", -1, 1, "lin")], {"search": "optuna", "trials": 2}, "greater than 0"),
        ([Choice("seed", (0, 1))], {}, "seed cannot be searched"),
        ([Choice("evaluation.validation", (0.1,))], {}, "cannot be searched"),
        ([Choice("stream.examples_per_class", (5,))], {}, "is given twice"),
        ([Choice("method.lr", (0.1,))] * 2, {}, "is given twice"),
        ([Choice("method.lr", (0.1,))], {"search": "optuna"}, "needs --trials"),
        ([Choice("method.lr", (0.1,))], {"validation": 1.5}, "validation should be"),
    ],
)
def test_axes_that_cannot_be_searched_are_rejected_before_any_run(
    axes, options, message: str
) -> None:
    def never(jobs: list[Job]) -> list[Outcome]:
        raise AssertionError(jobs)

    with pytest.raises(InputError, match=message):
        tune(SETTINGS, axes, never, seeds=[0], **options)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluation.validation": 0.5}, "evaluation.validation .*: use --validation"),
        ({"evaluation.images": 5}, "evaluation.images .*: a search scores its runs"),
        ({"evaluation": {"images": 5}}, "evaluation cannot be fixed"),
        ({"preset": "paper"}, "preset cannot be fixed .*name the fields"),
        ({"seed": 3}, "seed .*: use --seeds"),
        ({"method": "er"}, "method .*: use --method"),
        ({"stream": "shifting-window"}, "stream .*: use --stream"),
        ({"stream.kind": "joint"}, "use --stream disjoint --set stream.joint=tasks"),
        ({"scenario": "tusk"}, "scenario should be"),
    ],
)
def test_settings_that_a_preset_cannot_express_are_rejected_before_any_run(
    settings, message: str
) -> None:
    def never(jobs: list[Job]) -> list[Outcome]:
        raise AssertionError(jobs)

    with pytest.raises(InputError, match=message):
        tune(SETTINGS | settings, [Choice("method.lr", (0.1,))], never, seeds=[0])


def test_the_preset_reproduces_the_settings_of_the_search(tmp_path: Path) -> None:
    """Except how runs are evaluated."""
    searched: list[Job] = []

    def watching(jobs: list[Job]) -> list[Outcome]:
        searched.extend(jobs)
        return [Outcome(job, tmp_path, "failed", "not started") for job in jobs]

    settings = SETTINGS | {"stream.joint": "tasks", "memory": 7, "network": {"kind": "mlp"}}
    point = Choice("method.lr", (0.3,))
    tune(settings, [point], watching, seeds=[0])
    path = tmp_path / "mine.toml"
    path.write_text(preset_text([Tuned(settings, (tried(0.3, 0.5),))], "deepccg tune"))
    found = resolve({"preset": str(path), "method": "sgd", "dataset": "digits"})
    apart = {"evaluation", "preset"}
    assert found.model_dump(exclude=apart) == searched[0].config.model_dump(exclude=apart)
