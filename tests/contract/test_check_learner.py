"""The suite has teeth: each broken learner is caught, by the checks meant for it and no others."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ConfigDict, Field
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    Config,
    InputError,
    Learner,
    State,
    StateMismatch,
    StepInfo,
    Task,
    TaskRequired,
)
from deepccg.memory import MemoryStore
from deepccg.methods import ER, SGD, NetworkLearner
from deepccg.testing import ContractError, check_learner, learner_checks

SHARED = torch.zeros(3)


class ModifiesInputs(SGD):
    def learn(self, batch: Batch) -> StepInfo:
        info = super().learn(batch)
        batch.x.mul_(2)
        return info


class Level:
    """A saved part that is right in itself: the mean of some tensor."""

    def __init__(self) -> None:
        self.of = torch.zeros(1, 1)

    def state(self) -> State:
        return State({"level": self.of.mean().reshape(1)}, {})

    def check(self, state: State) -> None:
        if state.tensors["level"].shape != (1,):
            raise StateMismatch("the level is one number")

    def load(self, state: State) -> None:
        self.of = state.tensors["level"].reshape(1, 1).clone()


class KeepsInputs(SGD):
    """Shifts each batch by the mean of the last, of which it keeps the caller's own tensor."""

    def __init__(self, network: nn.Module, config: Any = None, **fields: Any) -> None:
        super().__init__(network, config, **fields)
        self.level = Level()

    def learn(self, batch: Batch) -> StepInfo:
        if not batch.x.is_floating_point():  # images: their form must stay
            return super().learn(batch)
        info = super().learn(replace(batch, x=batch.x + 0.1 * self.level.of.mean()))
        self.level.of = batch.x
        return info

    def state_parts(self) -> dict[str, Any]:
        return {**super().state_parts(), "level": self.level}


class DrawsFromTorch(SGD):
    def learn(self, batch: Batch) -> StepInfo:
        torch.rand(1)
        return super().learn(batch)


class DrawsFromNumpy(SGD):
    def learn(self, batch: Batch) -> StepInfo:
        np.random.rand()  # noqa: NPY002
        return super().learn(batch)


class ListensToTorch(SGD):
    """Lets the global generator decide without drawing from it."""

    def learn(self, batch: Batch) -> StepInfo:
        return super().learn(replace(batch, x=batch.x * (1 + torch.initial_seed() % 7)))


class ForgetsItsGenerator(ER):
    def state_parts(self) -> dict[str, Any]:
        return {name: part for name, part in super().state_parts().items() if name != "generator"}


class NamesUnseenClasses(SGD):
    def _seen_under(self, task: Task | None) -> Tensor:
        seen = super()._seen_under(task)
        return torch.ones_like(seen) if task is None else seen


class PrefersAClassBeforeLearning(SGD):
    def predict_logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        answers = super().predict_logits_each(x, tasks)
        if self.steps == 0:
            for answer in answers:
                answer[:, 0] += 1
        return answers


class Diary:
    """A saved part that remembers every loss."""

    def __init__(self) -> None:
        self.losses: list[float] = []

    def state(self) -> State:
        return State({}, {"losses": list(self.losses)})

    def check(self, state: State) -> None:
        list(state.meta["losses"])

    def load(self, state: State) -> None:
        self.losses = list(state.meta["losses"])


class GrowsItsState(SGD):
    def __init__(self, network: nn.Module, config: Any = None, **fields: Any) -> None:
        super().__init__(network, config, **fields)
        self.diary = Diary()

    def learn(self, batch: Batch) -> StepInfo:
        info = super().learn(batch)
        self.diary.losses.append(info.loss)
        return info

    def state_parts(self) -> dict[str, Any]:
        return {**super().state_parts(), "diary": self.diary}


class GrowsItsCost(SGD):
    def learn(self, batch: Batch) -> StepInfo:
        for _ in range(self.steps):
            self.embed(self.as_input(batch.x))
        return super().learn(batch)


class OverfillsItsMemory(ER):
    def __init__(
        self, network: nn.Module, config: Any = None, *, memory: int = 0, **fields: Any
    ) -> None:
        super().__init__(network, config, memory=memory, **fields)
        self.memory = MemoryStore(memory + 1)


class SharesATensor(SGD):
    def __init__(self, network: nn.Module, config: Any = None, **fields: Any) -> None:
        super().__init__(network, config, **fields)
        self.constants = [{"offset": SHARED}]


class DrawsWhenAsked(ER):
    def scores(self, x: Tensor) -> Tensor:
        torch.rand(1, generator=self.generator)
        return super().scores(x)


class ChangesBeforeRefusing(SGD):
    def load_state_dict(self, state: State) -> None:
        self.steps = 0
        super().load_state_dict(state)


class HandsOutLiveTensors(SGD):
    def state_dict(self) -> State:
        state = super().state_dict()
        live = {f"network.{name}": p.detach() for name, p in self.network.named_parameters()}
        return State({**state.tensors, **live}, state.meta)


class NeverLearns(SGD):
    def optimise(self, loss: Tensor) -> float:
        return float(loss.detach())


class AcceptsNaN(SGD):
    def learn(self, batch: Batch) -> StepInfo:
        return super().learn(replace(batch, x=batch.x.nan_to_num(0, 0, 0)))


class NeedsTasksToLearn(SGD):
    def learn(self, batch: Batch) -> StepInfo:
        if batch.task is None:
            raise TaskRequired("name the task of each batch")
        return super().learn(batch)


class OpenConfig(Config):
    model_config = ConfigDict(extra="ignore")
    lr: float = Field(0.1, description="step size")
    reduction: str = Field("mean", description="mean or sum")
    train_mask: str = Field("task", description="task, seen or all")


class IgnoresUnknownKeys(SGD):
    Config = OpenConfig


BROKEN: dict[type[Learner], set[str]] = {
    ModifiesInputs: {"inputs_are_not_modified"},
    KeepsInputs: {"inputs_are_not_kept"},
    DrawsFromTorch: {"global_generators_are_not_touched"},
    DrawsFromNumpy: {"global_generators_are_not_touched"},
    ListensToTorch: {"global_generators_do_not_matter"},
    ForgetsItsGenerator: {"resumes_bit_for_bit"},
    NamesUnseenClasses: {"probabilities_are_proper", "odd_batches_are_learned"},
    PrefersAClassBeforeLearning: {"uniform_before_learning"},
    GrowsItsState: {"state_does_not_grow"},
    GrowsItsCost: {"step_cost_does_not_grow"},
    OverfillsItsMemory: {"memory_stays_within_budget"},
    SharesATensor: {"instances_share_nothing"},
    DrawsWhenAsked: {"predicting_changes_nothing"},
    ChangesBeforeRefusing: {"refuses_foreign_states", "refuses_truncated_states"},
    HandsOutLiveTensors: {"states_are_snapshots"},
    NeverLearns: {"it_learns"},
    AcceptsNaN: {"refuses_bad_batches"},
    NeedsTasksToLearn: {"open_task_is_learned", "odd_batches_are_learned"},
    IgnoresUnknownKeys: {"config_is_closed_and_documented"},
}


def failures_of(learner_class: type[Learner]) -> set[str]:
    failed = set()
    for name, check in learner_checks(learner_class):
        try:
            check()
        except ContractError:
            failed.add(name)
    return failed


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_broken_learner_fails_the_checks_meant_for_it(broken):
    assert failures_of(broken) == BROKEN[broken]


class NeedsTasksToPredict(SGD):
    """A method may ask for the task of what it predicts."""

    def predict_logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        if None in tasks:
            raise TaskRequired("name the task of what is to be predicted")
        return super().predict_logits_each(x, tasks)


def test_a_method_may_need_the_task():
    check_learner(NeedsTasksToPredict)


class Plain(Learner):
    """Running class means of a fixed embedding, from the abstract contract alone."""

    Config = Config

    def __init__(
        self,
        network: nn.Module,
        config: Config | None = None,
        *,
        memory: int = 0,
        classes: Sequence[int] = (),
        seed: int = 0,
    ) -> None:
        del config, memory, seed  # nothing to set, stored or drawn
        self.network = network
        self.total = torch.zeros(len(classes), network.dim)
        self.count = torch.zeros(len(classes))
        self.labels = list(classes)

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(self.labels)

    def learn(self, batch: Batch) -> StepInfo:
        labels = batch.y.tolist()
        if batch.task is not None and not set(labels) <= set(batch.task.classes):
            raise InputError("a label lies outside its task")
        if not bool(torch.isfinite(batch.x.float()).all()):
            raise InputError("inputs must be finite")
        new = [label for label in dict.fromkeys(labels) if label not in self.labels]
        self.labels += new
        self.total = torch.cat([self.total, torch.zeros(len(new), self.total.shape[1])])
        self.count = torch.cat([self.count, torch.zeros(len(new))])
        columns = torch.tensor([self.labels.index(label) for label in labels])
        with torch.no_grad():
            self.total.index_add_(0, columns, self.network(batch.x))
        self.count += torch.bincount(columns, minlength=len(self.labels))
        return StepInfo(loss=0.0)

    @torch.no_grad()
    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        columns = self.columns(task)
        known = {label for label, count in zip(self.labels, self.count, strict=True) if count > 0}
        if task is None and not known:
            raise InputError("nothing was learned yet")
        allowed = known if task is None else known & set(task.classes)
        logits = torch.full((len(x), len(columns)), -torch.inf)
        for column, label in enumerate(columns):
            if label in allowed:
                mean = self.total[column] / self.count[column]
                logits[:, column] = -(self.network(x) - mean).square().sum(dim=1)
            elif not allowed and task is not None and label in task.classes:
                logits[:, column] = 0.0
        return logits

    def state_dict(self) -> State:
        network = {f"network.{k}": v.clone() for k, v in self.network.state_dict().items()}
        own = {"total": self.total.clone(), "count": self.count.clone()}
        return State({**network, **own}, {"method": "plain", "labels": list(self.labels)})

    def load_state_dict(self, state: State) -> None:
        shapes = {k: v.shape for k, v in self.state_dict().tensors.items()}
        rows = len(state.meta.get("labels", []))
        shapes |= {"total": torch.Size((rows, self.total.shape[1])), "count": torch.Size((rows,))}
        found = {k: v.shape for k, v in state.tensors.items()}
        if state.meta.get("method") != "plain" or shapes != found:
            raise StateMismatch("not a state of this learner")
        tensors = {k: v.clone() for k, v in state.tensors.items()}
        self.labels = list(state.meta["labels"])
        self.total, self.count = tensors.pop("total"), tensors.pop("count")
        self.network.load_state_dict({k.removeprefix("network."): v for k, v in tensors.items()})


def test_the_abstract_contract_is_enough():
    assert not issubclass(Plain, NetworkLearner)
    check_learner(Plain)


def test_failure_names_learner_check_promise_and_reason():
    with pytest.raises(ContractError) as caught:
        check_learner(OverfillsItsMemory)
    first, *lines = str(caught.value).splitlines()
    assert first == f"OverfillsItsMemory fails 1 of {len(learner_checks(SGD))} checks:"
    assert len(lines) == 1
    assert lines[0].startswith("- memory_stays_within_budget (No budget")
    assert lines[0].endswith("1 examples in a memory of 0")


def test_error_of_the_learner_is_told_and_chained():
    class Crashes(SGD):
        def learn(self, batch: Batch) -> StepInfo:
            raise ZeroDivisionError(f"batch of {len(batch)}\nand a second line")

    check = dict(learner_checks(Crashes))["it_learns"]
    with pytest.raises(
        ContractError, match="ZeroDivisionError: batch of 3 and a second line"
    ) as caught:
        check()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_expected_failures_are_strict():
    reason = {"it_learns": "its step size is zero"}
    check_learner(NeverLearns, expected_failures=reason)
    with pytest.raises(ContractError, match="it_learns passes, but was expected to fail: its step"):
        check_learner(SGD, expected_failures=reason)
    with pytest.raises(InputError, match="no check is named"):
        check_learner(SGD, expected_failures={"it_flies": "it has wings"})


def test_the_callers_generators_and_threads_are_left_alone():
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    check_learner(SGD)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
