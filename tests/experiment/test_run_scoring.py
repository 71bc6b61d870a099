"""When a run is scored, on what, and what it reports on the way."""

import json
from pathlib import Path
from typing import Any

import pytest

from deepccg.experiment import run
from deepccg.streams import Dataset, Split, load_dataset

QUICK = {"dataset": "digits", "stream.examples_per_class": 20}  # 20 batches, 5 tasks


def evaluations(directory: Path) -> list[dict[str, Any]]:
    """The evaluations of a run, read without the package."""
    lines = (directory / "records.jsonl").read_text(encoding="utf-8").splitlines()
    return [record for line in lines if (record := json.loads(line))["type"] == "evaluation"]


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
def test_evaluations_come_when_they_are_configured(
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


def test_progress_is_called_after_every_step(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    run(
        directory=tmp_path / "run",
        method="sgd",
        progress=lambda step, total, _: reported.append((step, total)),
        **QUICK,
    )
    assert reported == [(step, 20) for step in range(1, 21)]


def test_training_is_recorded_now_and_then(tmp_path: Path) -> None:
    losses: dict[int, float] = {}
    run(
        directory=tmp_path / "run",
        dataset="digits",
        method="sgd",
        progress=lambda step, _, info: losses.update({step: info.loss}),
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
