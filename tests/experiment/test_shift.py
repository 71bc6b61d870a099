"""Representation shift, recorded batch by batch."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist

from deepccg.core import InputError, Learner
from deepccg.experiment import RunConfig, build_learner, build_run_data, learner_class, resolve, run
from deepccg.methods import METHODS
from deepccg.records import Evaluation, RunDirectory, Shift
from deepccg.streams import load_dataset

QUICK = {  # 20 batches; the first of 5 tasks has 4
    "dataset": "digits",
    "stream.examples_per_class": 20,
    "network": {"kind": "mlp", "layers": [12, 6]},
}
FOLLOWED = QUICK | {"evaluation.shift_images": 30}
ONLINE = [name for name in METHODS if name != "multi-task"]
SOME = ["deepccg", "er", "esmer", "icarl", "packnet", "protocl"]


def by_hand(config: RunConfig, classify: Any) -> list[dict[str, Any]]:
    """The same records from a loop of the test's own, in NumPy."""
    data = build_run_data(config, load_dataset(config.dataset))
    stream, first = data.stream, data.stream.tasks[0]
    learner = build_learner(config, data.shape, stream.classes, learner_class(config.method.name))
    assert data.shift_images is not None
    x, y = data.shift_images.x, data.shift_images.y.numpy()
    assert sorted(set(y.tolist())) == sorted(first.classes)

    def embedded(images: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            return learner.network(images).double().numpy()

    found: list[dict[str, Any]] = []
    before: tuple[Any, Any] | None = None
    for step in range(1, len(stream) + 1):
        learner.learn(stream[step - 1])
        if step < 4:
            continue
        after = embedded(x), classify(learner, first.classes, embedded)
        if before is not None:
            old, new = before[0], after[0]
            moved = [sum((new[i] - old[i]) ** 2) ** 0.5 for i in range(len(y))]
            found.append(
                {
                    "type": "shift",
                    "step": step,
                    "task": (step - 1) // 4,
                    "mode": "task",
                    "images": len(y),
                    "distance": pytest.approx(sum(moved) / len(moved), rel=1e-5),
                    "spread": pytest.approx(pdist(old).mean(), rel=1e-5),
                    "correct_before": int((before[1](old) == y).sum()),
                    "correct_after": int((after[1](new) == y).sum()),
                    "correct_stale": int((before[1](new) == y).sum()),
                }
            )
        before = after
    return found


def head_of(learner: Learner, classes: tuple[int, ...], _: Any) -> Any:
    rows = [learner.classes.index(label) for label in classes]
    weight = learner.head.weight.detach().numpy()[rows].astype(float).copy()
    bias = learner.head.bias.detach().numpy()[rows].astype(float).copy()
    return lambda z: np.array(classes)[(z @ weight.T + bias).argmax(axis=1)]


def means_of(learner: Learner, classes: tuple[int, ...], embedded: Any) -> Any:
    columns = learner.memory.y.numpy()
    stored = embedded(learner.memory.x)
    means = np.stack([stored[columns == learner.classes.index(c)].mean(axis=0) for c in classes])
    return lambda z: np.array(classes)[((z[:, None] - means[None]) ** 2).sum(axis=2).argmin(axis=1)]


@pytest.mark.parametrize(("method", "classify"), [("er", head_of), ("deepccg", means_of)])
def test_the_records_agree_with_a_loop_by_hand(tmp_path: Path, method: str, classify) -> None:
    config = resolve(FOLLOWED | {"method": method})
    result = run(config, tmp_path / "run")
    lines = (tmp_path / "run" / "records.jsonl").read_text().splitlines()
    shifts = [record for line in lines if (record := json.loads(line))["type"] == "shift"]
    assert [shift["step"] for shift in shifts] == list(range(5, 21))
    assert shifts == by_hand(config, classify)
    moved = [Shift(**shift) for shift in shifts]
    assert moved == RunDirectory(result.directory).shifts()
    assert any(shift.correct_after != shift.correct_before for shift in moved)


@pytest.mark.slow_for_most
@pytest.mark.parametrize("method", ONLINE)
def test_recording_leaves_learning_as_it_is(tmp_path: Path, method: str) -> None:
    fewer = {"method.passes": 4} if method == "gdumb" else {}  # which trains at every look
    plain = run(directory=tmp_path / "plain", method=method, **QUICK, **fewer)
    followed = run(directory=tmp_path / "followed", method=method, **FOLLOWED, **fewer)
    one, other = plain.learner.state_dict(), followed.learner.state_dict()
    assert one.meta == other.meta
    assert one.tensors.keys() == other.tensors.keys()
    assert all(torch.equal(one.tensors[key], value) for key, value in other.tensors.items())
    assert plain.evaluations == followed.evaluations
    assert len(RunDirectory(followed.directory).shifts()) == 16
    assert not RunDirectory(plain.directory).shifts()


def test_passes_count_as_those_of_an_evaluation(tmp_path: Path) -> None:
    plain = run(directory=tmp_path / "plain", method="er", **QUICK).audit
    audit = run(directory=tmp_path / "followed", method="er", **FOLLOWED).audit
    assert audit is not None
    assert plain is not None
    assert audit["passed"]
    assert audit["passes"]["learning"] == plain["passes"]["learning"]
    more = {
        kind: audit["passes"]["evaluation"][kind] - plain["passes"]["evaluation"][kind]
        for kind in audit["passes"]["evaluation"]
    }
    looks = 17  # after the first task, and after each of the 16 batches that follow
    expected = {"forward_calls": looks, "forward_images": 30 * looks}
    assert more == expected | {"backward_calls": 0, "backward_images": 0}
    assert audit["test"] == plain["test"]


def contents(directory: Path) -> dict[str, bytes]:
    files = sorted(directory.iterdir())
    left_out = {"previous.safetensors", "timing.json"}
    return {file.name: file.read_bytes() for file in files if file.name not in left_out}


@pytest.mark.slow
@pytest.mark.parametrize("method", SOME)
def test_an_interrupted_run_writes_the_same(
    tmp_path: Path, checkpoint_every, stop_at, interrupted, method: str
) -> None:
    run(directory=tmp_path / "whole", method=method, **FOLLOWED)
    checkpoint_every(0)
    for step in (4, 5, 6, 13):  # the last of the first task, the first that is measured, later
        with pytest.raises(interrupted):
            run(directory=tmp_path / "run", method=method, progress=stop_at(step), **FOLLOWED)
    run(directory=tmp_path / "run", method=method, **FOLLOWED)
    assert contents(tmp_path / "run") == contents(tmp_path / "whole")


def test_in_the_class_scenario_all_classes_compete(tmp_path: Path) -> None:
    result = run(directory=tmp_path / "run", method="er", scenario="class", **FOLLOWED)
    shifts = RunDirectory(result.directory).shifts()
    assert {shift.mode for shift in shifts} == {"class"}
    # Followed and scored images differ, but all of the first task's are followed here:
    settings = QUICK | {"evaluation.shift_images": 1000, "evaluation.every": 1}
    result = run(directory=tmp_path / "all", method="er", scenario="class", **settings)
    scored = {e.step: e for e in result.evaluations if isinstance(e, Evaluation)}
    for shift in RunDirectory(result.directory).shifts():
        assert shift.images == scored[shift.step].tasks[0].images
        assert shift.correct_after == scored[shift.step].tasks[0].class_correct
        assert shift.correct_before == scored[shift.step - 1].tasks[0].class_correct


def test_shift_is_part_of_the_configuration_and_of_the_name(tmp_path: Path) -> None:
    plain, followed = resolve(QUICK), resolve(FOLLOWED)
    assert plain.name() != followed.name()
    run(plain, tmp_path / "run")
    with pytest.raises(InputError, match="holds another run"):
        run(followed, tmp_path / "run")


def test_runs_without_it_keep_the_name_they_had() -> None:
    config = resolve({"dataset": "cifar10", "method": "icarl", "evaluation.every": "end"})
    assert config.name() == "cifar10-disjoint-task-icarl-default-7d1b0dfc"


def test_the_shift_of_held_out_data_can_be_recorded(tmp_path: Path) -> None:
    settings = FOLLOWED | {"evaluation.validation": 0.2, "evaluation.shift_images": 4}
    result = run(directory=tmp_path / "run", method="sgd", **settings)
    assert {shift.images for shift in RunDirectory(result.directory).shifts()} == {4}
    assert result.audit is not None
    assert not result.audit["test"]["opened"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"evaluation.shift_images": 1}, "1 images cannot show 2 classes"),
        ({"evaluation.shift_images": 0}, "shift_images should be"),
        ({"evaluation.shift_images": 5, "method": "multi-task"}, "one after the other"),
    ],
)
def test_shift_images_that_cannot_be_recorded_are_refused(
    tmp_path: Path, settings, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run(directory=tmp_path / "run", **(QUICK | settings))
    assert not (tmp_path / "run" / "config.toml").exists()
