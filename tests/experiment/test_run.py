"""One run: what it writes, what it repeats, and what it refuses."""

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from deepccg.core import InputError, StepInfo
from deepccg.experiment import RunConfig, RunResult, resolve, run
from deepccg.methods import METHODS
from deepccg.streams import load_dataset

QUICK = {"dataset": "digits", "stream.examples_per_class": 20}  # 20 batches, 5 tasks
FILES = [
    "audit.json", "checkpoint.safetensors", "config.toml", "environment.json", "records.jsonl",
    "timing.json",
]  # fmt: skip


def evaluations(directory: Path) -> list[dict[str, Any]]:
    """The evaluations of a run, read without the package."""
    lines = (directory / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for line in lines if (record := json.loads(line))["type"] == "evaluation"]


def contents(directory: Path) -> dict[str, bytes]:
    """Every file that two equal runs share."""
    files = sorted(directory.iterdir())
    return {file.name: file.read_bytes() for file in files if file.name != "timing.json"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(directory=tmp_path_factory.mktemp("runs") / "er", method="er", **QUICK)


def test_a_run_directory_holds_six_files(finished: RunResult) -> None:
    assert sorted(file.name for file in finished.directory.iterdir()) == FILES


def test_the_written_configuration_is_complete(finished: RunResult) -> None:
    written = tomllib.loads((finished.directory / "config.toml").read_text(encoding="utf-8"))
    assert resolve(written) == finished.config
    assert RunConfig.model_validate(written) == finished.config  # with no help of a preset
    assert written["stream"]["examples_per_class"] == 20


def test_the_environment_is_what_the_run_ran_on(finished: RunResult) -> None:
    about = json.loads((finished.directory / "environment.json").read_text(encoding="utf-8"))
    assert about["packages"]["torch"] == torch.__version__
    assert about["packages"]["numpy"] == np.__version__
    assert (about["threads"], about["device"]) == (1, "cpu")


def test_every_training_example_is_read_once(finished: RunResult) -> None:
    assert finished.examples_read == 200
    assert evaluations(finished.directory)[-1]["examples"] == 200


def test_the_summary_can_be_recomputed_from_the_records(finished: RunResult) -> None:
    final = evaluations(finished.directory)[-1]
    by_task = [score["task_correct"] / score["images"] for score in final["tasks"]]
    assert finished.summary["task_accuracy"] == pytest.approx(sum(by_task) / 5, abs=1e-15)
    right = sum(score["class_correct"] for score in final["classes"])
    assert finished.summary["class_accuracy"] == right / 397


def test_the_records_say_what_the_learner_predicts(finished: RunResult) -> None:
    test = load_dataset("digits").test
    x, y = torch.from_numpy(test.x), torch.from_numpy(test.y)
    right = int((finished.learner.predict(x) == y).sum())
    final = evaluations(finished.directory)[-1]
    assert sum(score["class_correct"] for score in final["classes"]) == right
    assert 100 < right < 397
    assert len(final["tasks"]) == 5


@pytest.mark.slow_for_most
@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bits(method: str, tmp_path: Path, shorter) -> None:
    settings = {"method": method, **QUICK, **shorter(method)}
    torch.manual_seed(1)
    run(directory=tmp_path / "a", seed=3, **settings)
    torch.manual_seed(2)
    torch.rand(7)
    run(directory=tmp_path / "b", seed=3, **settings)
    run(directory=tmp_path / "c", seed=4, **settings)
    first, second, third = (contents(tmp_path / name) for name in "abc")
    assert first == second
    assert first["records.jsonl"] != third["records.jsonl"]
    assert first["checkpoint.safetensors"] != third["checkpoint.safetensors"]


def test_a_finished_run_is_read_back_without_learning(finished: RunResult) -> None:
    before = contents(finished.directory)

    def learns(step: int, _total: int, _info: StepInfo) -> None:
        raise AssertionError(f"learned step {step} again")

    again = run(directory=finished.directory, method="er", progress=learns, **QUICK)
    assert contents(finished.directory) == before
    assert again.evaluations == finished.evaluations
    assert again.summary == finished.summary
    assert again.examples_read == finished.examples_read
    x = torch.from_numpy(load_dataset("digits").test.x)
    assert torch.equal(again.learner.predict_logits(x), finished.learner.predict_logits(x))


def test_threads_and_preset_name_do_not_make_another_run(finished: RunResult) -> None:
    again = run(directory=finished.directory, method="er", preset="paper", **QUICK)
    assert again.evaluations == finished.evaluations


@pytest.mark.parametrize(
    "change",
    [{"seed": 1}, {"method": "sgd"}, {"method.lr": 0.2}, {"memory": 7}, {"evaluation.every": 3}],
    ids=lambda change: next(iter(change)),
)
def test_a_directory_of_another_run_is_refused(finished: RunResult, change: dict) -> None:
    before = contents(finished.directory)
    with pytest.raises(InputError, match="holds another run: choose another directory"):
        run(directory=finished.directory, **({"method": "er"} | QUICK | change))
    assert contents(finished.directory) == before


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="is not empty and holds no run"):
        run(directory=tmp_path, **QUICK)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"
    assert not (tmp_path / "config.toml").exists()


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match="cannot write to") as caught:
            run(directory=place, **QUICK)
        assert "\n" not in str(caught.value)


def test_a_configuration_and_settings_mean_the_same(finished: RunResult, tmp_path: Path) -> None:
    run(resolve({"method": "er"} | QUICK), tmp_path / "run")
    assert contents(tmp_path / "run") == contents(finished.directory)
    with pytest.raises(InputError, match="a configuration or settings, not both"):
        run(finished.config, seed=3)


def test_what_a_configuration_leaves_open_comes_from_its_preset(
    finished: RunResult, tmp_path: Path
) -> None:
    config = RunConfig.model_validate(
        {"method": {"name": "er"}, "stream": {"examples_per_class": 20}}
    )
    assert config.memory_per_class is None
    run(config, tmp_path / "run")
    assert contents(tmp_path / "run") == contents(finished.directory)


def test_a_complete_configuration_is_not_resolved_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = resolve({"method": "er"} | QUICK)
    plain = RunConfig.model_validate_json(config.model_dump_json())  # as a worker gets it
    resolving = sys.modules["deepccg.experiment.resolve"]
    monkeypatch.setattr(resolving, "resolve", None)
    for given in (config, plain):
        assert resolving.resolve_config(given) is given
    assert run(config, tmp_path / "run").config == config.model_copy(update={"kernels": "torch"})
    both = config.model_copy(update={"memory": 3})
    with pytest.raises(InputError, match="one of them"):
        run(both, tmp_path / "both")


def test_the_directory_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(method="sgd", seed=2, **QUICK)
    assert result.directory == Path("runs") / result.config.name() / "seed-2"
    assert sorted(file.name for file in (tmp_path / result.directory).iterdir()) == FILES


def test_torch_threads_are_given_back(tmp_path: Path) -> None:
    seen: list[int] = []
    torch.set_num_threads(2)
    try:
        run(
            directory=tmp_path / "run",
            method="sgd",
            progress=lambda *_: seen.append(torch.get_num_threads()),
            **QUICK,
        )
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("device", ["nonsense", "", "cuda:99"])
def test_a_device_that_is_not_there_is_one_line(tmp_path: Path, device: str) -> None:
    with pytest.raises(InputError, match=f"device '{device}' cannot be used") as caught:
        run(directory=tmp_path / "run", device=device, **QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()
