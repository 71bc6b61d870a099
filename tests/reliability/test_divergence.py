"""A run that diverges ends with one line: when, what is left, what to do. No NaN is written."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deepccg.core import (
    Batch,
    Config,
    Diverged,
    Learner,
    State,
    StepInfo,
    Task,
    all_finite,
    has_finite_squares,
)
from deepccg.experiment import load, run
from deepccg.experiment.guards import check_state, check_step
from deepccg.experiment.session import load_checkpoint
from deepccg.methods import METHODS, NetworkLearner
from deepccg.networks import MLP
from deepccg.records import RunDirectory, find_runs

TASK = Task(0, (0, 1), batches=9)
QUICK = {"stream.examples_per_class": 6}


TRAINED = [name for name, kind in METHODS.items() if "lr" in kind.Config.model_fields]


def settings_of(method: str) -> dict[str, Any]:
    joint = {"stream.joint": "tasks"} if method == "multi-task" else {}
    return {"method": method, **QUICK, **joint}


def require_readable(place: Path) -> list[Any]:
    """Whatever is there is whole and has nothing but numbers."""
    for line in (place / "records.jsonl").read_text().splitlines() if _has_records(place) else []:
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} was written"))
    for name in ("checkpoint.safetensors", "previous.safetensors"):
        if (place / name).exists():
            state, _ = load_checkpoint(place / name)
            assert state.not_finite() == []
    return list(RunDirectory(place).records())


def _has_records(place: Path) -> bool:
    return (place / "records.jsonl").exists()


@pytest.mark.parametrize("method", ["sgd", "er", "ewc", "icarl", "infogs", "protocl"])
def test_a_step_size_of_a_million_is_one_line(command: Callable[..., Any], method: str) -> None:
    words = ["run", "--method", method, "--set", "method.lr=1e6", "--checkpoint-every", "1"]
    words += ["--set", "stream.examples_per_class=6", "--out", "out"]
    said = command(*words)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
    assert "try a smaller lr, such as --set method.lr=0.1; out" in said.err
    (found,) = find_runs(["out"])
    require_readable(found.path)
    _, about = load_checkpoint(found.checkpoint_path)
    assert f"holds the checkpoint of step {about['position']}" in said.err
    assert f"step {about['position'] + 1}" in said.err  # the first one that went wrong
    image = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    assert torch.isfinite(load(found.path).predict_proba(image, TASK)).all()
    assert command(*words) == said  # it can be resumed, and comes to the same end


@pytest.mark.parametrize("method", TRAINED)
def test_no_method_writes_what_is_not_a_number(tmp_path: Path, method: str) -> None:
    place = tmp_path / "run"
    every = {"checkpoint_every": 1, "evaluation.every": 1, "method.lr": 1e30}
    with pytest.raises(Diverged, match=r"step \d.*smaller lr, such as --set method\.lr=0\.1"):
        run(directory=place, **settings_of(method), **every)
    require_readable(place)
    assert not RunDirectory(place).finished


@pytest.mark.parametrize("method", TRAINED)
def test_weights_that_overflow_stop_at_that_very_step(method: str) -> None:
    """The loss before the step was finite, and so is every gradient."""
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))
    learner = METHODS[method](MLP(3, (4,)), memory=8)
    learner.learn(Batch(x, torch.tensor([0, 1, 0, 1]), TASK))
    gradients = [torch.full_like(parameter, 100.0) for parameter in learner.trainable_parameters()]
    learner.optimiser.lr = 1e37
    with pytest.raises(Diverged, match="weights are not finite after step 2: try a smaller lr"):
        learner.apply_gradients(gradients)
    learner.optimiser.lr = 1e39
    with pytest.raises(Diverged, match=r"lr 1e\+39 is beyond all torch.float32 numbers"):
        learner.apply_gradients(gradients)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_finite_weights_are_distinguished_from_others(value: float) -> None:
    weights = [torch.full((3, 2), 1e30), torch.zeros(0), torch.ones(()), -torch.ones(5) * 1e37]
    assert all_finite(weights)
    assert all_finite([])
    for place in (0, 3):
        spoilt = [weight.clone() for weight in weights]
        spoilt[place].view(-1)[-1] = value
        assert not all_finite(spoilt)


class Spoilt(NetworkLearner[Config]):
    """Learns nothing, and at some step spoils what it reports or holds."""

    Config = Config
    at, spoils = 5, "loss"

    def learn(self, batch: Batch) -> StepInfo:
        self.begin_step(batch)
        self.steps += 1
        loss, extra = 0.0, {"size": 1.0}
        if self.steps == self.at:
            if self.spoils == "loss":
                loss = math.nan
            elif self.spoils == "extra":
                extra["size"] = math.inf
            else:
                with torch.no_grad():
                    next(self.network.parameters()).view(-1)[0] = math.inf
        return StepInfo(loss, extra=extra)

    def scores(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(x), len(self.class_table))


@pytest.mark.parametrize(
    ("spoils", "says"),
    [
        ("loss", "loss is nan at step 5"),
        ("extra", "size is inf at step 5"),
        ("weights", r"network\.layers\.0\.weight is not finite after step 5"),
    ],
)
def test_a_user_defined_learner_is_checked_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoils: str, says: str
) -> None:
    monkeypatch.setattr(Spoilt, "spoils", spoils)
    place = tmp_path / "run"
    with pytest.raises(Diverged, match=f"{says}.* holds the checkpoint of step 4"):
        run(directory=place, learner=Spoilt, checkpoint_every=1, **QUICK)
    assert all(record.step < 5 for record in require_readable(place))
    _, about = load_checkpoint(place / "checkpoint.safetensors")
    assert about["position"] == 4


def test_spoilt_weights_are_found_before_they_are_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This learner's scores stay finite, whatever its weights are."""
    monkeypatch.setattr(Spoilt, "spoils", "weights")
    place = tmp_path / "run"
    settings = {**QUICK, "evaluation.every": 5}
    with pytest.raises(Diverged, match=r"not finite after step 5: .* holds no checkpoint yet"):
        run(directory=place, learner=Spoilt, **settings)
    assert require_readable(place) == []


def test_what_is_checked_of_steps_and_states() -> None:
    check_step(3, StepInfo(0.5, extra={"a": 1.0}))
    check_state(3, State({"a": torch.zeros(2), "n": torch.tensor([1])}, {}))
    with pytest.raises(Diverged, match="a is inf at step 3"):
        check_step(3, StepInfo(0.5, extra={"a": math.inf}))
    with pytest.raises(Diverged, match="a is not finite after step 3"):
        check_state(3, State({"a": torch.tensor([math.nan])}, {}))


def test_all_states_of_all_methods_are_finite_numbers() -> None:
    for method in METHODS.values():
        learner: Learner = method(MLP(3, (4,)), memory=6)
        for step in range(6):
            x = torch.randn(4, 3, generator=torch.Generator().manual_seed(step))
            learner.learn(Batch(x, torch.tensor([0, 1, 1, 0]), TASK))
        assert learner.state_dict().not_finite() == []


@pytest.mark.parametrize("rows", [1, 5000])
def test_whether_numbers_can_be_used_does_not_depend_on_how_many_there_are(rows: int) -> None:
    assert has_finite_squares(
        torch.full((rows, 3), 1e19)
    )  # its square is a float32, the sum of many is not
    assert not has_finite_squares(torch.full((rows, 3), 2e19))
    assert has_finite_squares(torch.full((rows, 3), 2e19, dtype=torch.float64))
    assert not has_finite_squares(torch.full((rows, 3), torch.nan))
    assert has_finite_squares(torch.full((rows, 3), 300.0, dtype=torch.float16))
