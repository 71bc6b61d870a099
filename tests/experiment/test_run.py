"""One run: what it reads, what it scores, what it writes, and what it refuses."""

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from deepccg.core import InputError, StepInfo
from deepccg.experiment import RunConfig, RunResult, resolve, run
from deepccg.methods import METHODS
from deepccg.streams import Dataset, Split, from_arrays, load_dataset

QUICK = {"dataset": "digits", "stream.examples_per_class": 20}  # 20 batches, 5 tasks
FILES = ["checkpoint.safetensors", "config.toml", "environment.json", "records.jsonl"]


def evaluations(directory: Path) -> list[dict[str, Any]]:
    """The evaluations of a run, read without the package."""
    lines = (directory / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for line in lines if (record := json.loads(line))["type"] == "evaluation"]


def contents(directory: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(directory.iterdir())}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    return run(directory=tmp_path_factory.mktemp("runs") / "er", method="er", **QUICK)


def test_a_run_directory_holds_four_files(finished: RunResult) -> None:
    assert sorted(contents(finished.directory)) == FILES


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


@pytest.mark.parametrize("method", METHODS)
def test_the_same_seed_gives_the_same_bits(method: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    run(directory=tmp_path / "a", method=method, seed=3, **QUICK)
    torch.manual_seed(2)
    torch.rand(7)
    run(directory=tmp_path / "b", method=method, seed=3, **QUICK)
    run(directory=tmp_path / "c", method=method, seed=4, **QUICK)
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


@pytest.mark.parametrize(
    ("stream", "every", "steps"),
    [
        ("disjoint", "end", [20]),
        ("disjoint", "task", [4, 8, 12, 16, 20]),
        ("disjoint", 7, [7, 14, 20]),
        ("disjoint", 10, [10, 20]),
        ("disjoint", 1000, [20]),
        ("shifting-window", "task", [2, 4, 6, 8, 10, 12, 14, 16, 18]),
        ("shifting-window", 5, [5, 10, 15, 18]),
    ],
)
def test_the_learner_is_scored_when_asked(
    tmp_path: Path, stream: str, every: Any, steps: list[int]
) -> None:
    settings = QUICK | {"method": "sgd", "stream": stream, "evaluation.every": every}
    result = run(directory=tmp_path / "run", **settings)
    found = evaluations(result.directory)
    batches_per_task = 4 if stream == "disjoint" else 2
    assert [record["step"] for record in found] == steps
    assert [record["final"] for record in found] == [step == steps[-1] for step in steps]
    assert [record["examples"] for record in found] == [10 * step for step in steps]
    assert [record["task"] for record in found] == [(s - 1) // batches_per_task for s in steps]
    for record in found:  # under every task met, and no other
        assert [score["task"] for score in record["tasks"]] == [*range(record["task"] + 1)]


def test_progress_is_told_after_every_step(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    run(
        directory=tmp_path / "run",
        method="sgd",
        progress=lambda step, total, info: told.append((step, total)),
        **QUICK,
    )
    assert told == [(step, 20) for step in range(1, 21)]


def test_training_is_recorded_now_and_then(tmp_path: Path) -> None:
    losses: dict[int, float] = {}
    run(
        directory=tmp_path / "run",
        dataset="digits",
        method="sgd",
        progress=lambda step, total, info: losses.update({step: info.loss}),
    )
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    training = [record for line in lines if (record := json.loads(line))["type"] == "training"]
    assert {record["step"]: record["loss"] for record in training} == {
        50: losses[50],
        100: losses[100],
    }


def test_a_cap_on_the_images_is_recorded(tmp_path: Path) -> None:
    settings = QUICK | {"method": "sgd", "evaluation.images": 50}
    result = run(directory=tmp_path / "run", **settings)
    final = evaluations(result.directory)[-1]
    assert (final["images"], final["of_images"]) == (50, 397)
    assert [score["images"] for score in final["classes"]] == [5] * 10


def test_validation_scores_held_out_training_data_and_never_opens_the_test_part(
    tmp_path: Path,
) -> None:
    def open_test() -> Split:
        raise AssertionError("the test part was opened")

    digits = load_dataset("digits")
    data = Dataset("digits", digits.class_names, lambda: digits.train, open_test)
    settings = QUICK | {"method": "sgd", "evaluation.validation": 0.1}
    result = run(directory=tmp_path / "run", data=data, **settings)
    final = evaluations(result.directory)[-1]
    assert (final["images"], final["of_images"]) == (20, 20)  # 2 of the 20 of each class
    assert result.examples_read == 180
    with pytest.raises(AssertionError, match="the test part was opened"):
        run(directory=tmp_path / "other", data=data, **(QUICK | {"method": "sgd"}))


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


def test_the_directory_has_a_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(method="sgd", seed=2, **QUICK)
    assert result.directory == Path("runs") / result.config.name() / "seed-2"
    assert sorted(contents(tmp_path / result.directory)) == FILES


def test_torch_threads_are_given_back(tmp_path: Path) -> None:
    seen: list[int] = []
    before = torch.get_num_threads()
    run(
        directory=tmp_path / "run",
        method="sgd",
        progress=lambda *_: seen.append(torch.get_num_threads()),
        **QUICK,
    )
    assert set(seen) == {1}
    assert torch.get_num_threads() == before


def test_arrays_of_vectors_can_be_learned(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 30)
    centres = 3 * rng.normal(size=(4, 5))
    x = centres[y] + rng.normal(size=(120, 5))
    data = from_arrays(x, y, x, y, class_names=list("abcd"), name="clouds")
    result = run(directory=tmp_path / "run", data=data, method="deepccg", memory=20)
    assert result.config.dataset == "clouds"
    assert result.summary["task_accuracy"] > 0.8


@pytest.mark.parametrize("device", ["nonsense", "", "cuda:99"])
def test_a_device_that_is_not_there_is_one_line(tmp_path: Path, device: str) -> None:
    with pytest.raises(InputError, match=f"device '{device}' cannot be used") as caught:
        run(directory=tmp_path / "run", device=device, **QUICK)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def picture(seed: int, size: int) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (size, size, 3), dtype=np.uint8))


def write_class_folders(root: Path) -> None:
    for c, name in enumerate(["cat", "dog", "owl", "fox"]):
        (root / name).mkdir(parents=True)
        for i in range(10):
            picture(100 * c + i, 8).save(root / name / f"{i}.png")


def write_parquet(root: Path, scratch: Path) -> None:
    """A cifar10 of 40 training and 20 test images."""
    root.mkdir()
    for part, count in (("train", 40), ("test", 20)):
        cells = []
        for i in range(count):
            picture(i, 32).save(scratch)
            cells.append({"bytes": scratch.read_bytes(), "path": None})
        table = pyarrow.table({"img": cells, "label": [i % 10 for i in range(count)]})
        pyarrow.parquet.write_table(table, root / f"{part}.parquet")


@pytest.mark.parametrize("source", ["folder", "parquet"])
def test_nothing_that_is_written_tells_where_the_data_lies(tmp_path: Path, source: str) -> None:
    place = tmp_path / "secret-place" / "pets"
    if source == "folder":
        write_class_folders(place)
        settings: dict[str, Any] = {"dataset": str(place)}
    else:
        place.parent.mkdir()
        write_parquet(place, tmp_path / "scratch.png")
        settings = {"dataset": "cifar10", "data_dir": place}
    out = tmp_path / "run"
    result = run(directory=out, **settings, **{"network.kind": "mlp", "memory_per_class": 2})
    assert result.config.dataset == ("pets" if source == "folder" else "cifar10")
    for name, content in contents(out).items():
        for trace in (str(tmp_path), "secret-place", "data_dir", "pets/"):
            assert trace.encode() not in content, (name, trace)
