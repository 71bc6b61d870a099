"""Shared by the tests of tracking: interrupted runs, and the curves that records hold."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deepccg.core import StepInfo
from deepccg.experiment import run
from deepccg.records import Evaluation, RunDirectory, Training, summary

SETTINGS = {"method": "er", "stream.examples_per_class": 110, "evaluation.every": 20}  # 110 steps


class Cut(Exception):
    """Stands for whatever ends a process."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCCG_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def parameters() -> Callable[[RunDirectory], dict[str, Any]]:
    """Return the configuration of a run directory, flattened by hand."""

    def flat(directory: RunDirectory) -> dict[str, Any]:
        found = {}
        for key, value in directory.config().items():
            inner = value.items() if isinstance(value, dict) else [(None, value)]
            found |= {key if name is None else f"{key}.{name}": each for name, each in inner}
        return found

    return flat


@pytest.fixture
def tracked_run() -> Callable[..., RunDirectory]:
    """Runs with a tracker, cut at the given steps, with a checkpoint at every thirtieth."""

    def do(directory: Path, track: str | None, *cuts: int) -> RunDirectory:
        for cut in cuts:

            def progress(step: int, _steps: int, _info: StepInfo, cut: int = cut) -> None:
                if step == cut:
                    raise Cut

            with pytest.raises(Cut):
                run(
                    directory=directory,
                    progress=progress,
                    checkpoint_every=30,
                    track=track,
                    **SETTINGS,
                )
        run(directory=directory, track=track, **SETTINGS)
        return RunDirectory(directory)

    return do


def series_of(directory: RunDirectory) -> dict[str, list[tuple[int, float]]]:
    """Return each curve, computed from the records independently."""
    series: dict[str, list[tuple[int, float]]] = {}

    def add(name: str, step: int, value: float | None) -> None:
        if value is not None:
            series.setdefault(name, []).append((step, value))

    evaluations: list[Evaluation] = []
    for record in directory.records():
        if isinstance(record, Training):
            add("train/loss", record.step, record.loss)
            for name, value in record.extra.items():
                add(f"train/{name}", record.step, value)
        elif isinstance(record, Evaluation):
            evaluations.append(record)
            for name, value in summary(evaluations).items():
                add(f"eval/{name}", record.step, value)
            for score in record.tasks:
                task = f"task_{score.task}"
                add(f"{task}/task_accuracy", record.step, score.task_correct / score.images)
                assert score.class_correct is not None
                add(f"{task}/class_accuracy", record.step, score.class_correct / score.images)
    return series


@pytest.fixture
def series() -> Callable[[RunDirectory], dict[str, list[tuple[int, float]]]]:
    return series_of
