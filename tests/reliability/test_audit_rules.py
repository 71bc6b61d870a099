"""A learner that cheats is caught, whichever rule it breaks."""

import copy
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from deepccg.core import Batch, Learner, MemoryUsage, ProtocolViolation, StepInfo, Task
from deepccg.experiment import run
from deepccg.methods import ER, METHODS, SGD
from deepccg.records import RunDirectory
from deepccg.streams import Cursor, Dataset, load_dataset

QUICK = {"stream.examples_per_class": 20, "memory": 30}  # of the digits: 5 tasks of 4 batches


def violation(directory: Path, learner: type[Learner] | None, **settings: object) -> tuple:
    """The rule that a run broke and what it said; it said so everywhere."""
    with pytest.raises(ProtocolViolation) as raised:
        run(directory=directory, learner=learner, **{**QUICK, **settings})
    audit = json.loads((directory / "audit.json").read_text(encoding="utf-8"))
    (found,) = audit["violations"]
    assert not audit["passed"]
    assert str(raised.value) == f"protocol violation ({found['rule']}): {found['message']}"
    assert "\n" not in str(raised.value)
    assert not RunDirectory(directory).finished
    return found["rule"], found["message"]


class Hoarder(ER):
    """Keeps every image it sees, in one way or another."""

    keep: ClassVar[Callable[[Tensor], object]]

    def learn(self, batch: Batch) -> StepInfo:
        self.__dict__.setdefault("hoard", []).append(type(self).keep(batch.x))
        return super().learn(batch)


def one_by_one(x: Tensor) -> object:
    return {label: {"image": image.clone()} for label, image in enumerate(x)}


HIDING_PLACES: dict[str, Callable[[Tensor], object]] = {
    "as they came": lambda x: x.clone(),
    "flattened": lambda x: x.flatten(1).clone(),
    "one by one": one_by_one,
    "in one row": lambda x: x.flatten().clone(),
    "as floats": lambda x: x.double(),
    "divided by 255": lambda x: x / 255,
    "from -1 to 1": lambda x: (x.float() - 127.5) / 127.5,
    "as integers": lambda x: x.long(),
    "as an array": lambda x: x.numpy().copy(),
    "as bytes": lambda x: x.numpy().tobytes(),
}


@pytest.mark.parametrize("place", HIDING_PLACES)
def test_images_hoarded_outside_the_memory(tmp_path: Path, place: str) -> None:
    cheat = type("Cheat", (Hoarder,), {"keep": staticmethod(HIDING_PLACES[place])})
    rule, message = violation(tmp_path / "run", cheat)
    # Already at the end of the first task: its 40 images, of which memory holds 30.
    where = "(40 in learner.hoard)"
    assert (rule, message) == ("memory", f"40 examples are held, 30 are allowed {where}")


class ClassHoarder(ER):
    """Hides them in its class, which no attribute of the learner leads to."""

    hoard: ClassVar[list[Tensor]] = []

    def learn(self, batch: Batch) -> StepInfo:
        self.hoard.append(batch.x)
        return super().learn(batch)


def test_images_hoarded_in_the_class(tmp_path: Path) -> None:
    ClassHoarder.hoard.clear()
    assert violation(tmp_path / "run", ClassHoarder)[0] == "memory"


class LastBatch(SGD):
    """Has no memory, and remembers the last batch."""

    def learn(self, batch: Batch) -> StepInfo:
        self.last = batch
        return super().learn(batch)


def test_the_present_batch_counts(tmp_path: Path) -> None:
    rule, message = violation(tmp_path / "run", LastBatch, memory=0)
    where = "(10 in learner.last.x)"
    assert (rule, message) == ("memory", f"10 examples are held, 0 are allowed {where}")
    run(directory=tmp_path / "allowed", learner=LastBatch, **{**QUICK, "memory": 10})


class Modest(METHODS["esmer"]):
    """Saves a second network and does not say so."""

    def memory_usage(self) -> MemoryUsage:
        return ER.memory_usage(self)


class Secretive(ER):
    """Has a second network that is not even saved."""

    def learn(self, batch: Batch) -> StepInfo:
        self.old = copy.deepcopy(self.network)
        return super().learn(batch)


class Verbose(ER):
    """Hides numbers in the JSON part of its state."""

    def config_dict(self) -> dict:
        return {**super().config_dict(), "notes": "x" * 40_000}


@pytest.mark.parametrize("cheat", [Modest, Secretive, Verbose])
def test_bytes_that_are_not_named(tmp_path: Path, cheat: type[Learner]) -> None:
    rule, message = violation(tmp_path / "run", cheat)
    assert rule == "bytes"
    held = int(message.split()[3].replace(",", ""))
    least = 40_000 if cheat is Verbose else 59_760  # the network's parameters, 4 bytes each
    assert least < held < least + 5_000


class Peeker(ER):
    """Restricts the class-incremental answer to the tasks it is asked about in the same call."""

    def predict_logits_each(self, x: Tensor, tasks: Sequence[Task | None]) -> list[Tensor]:
        answers = super().predict_logits_each(x, tasks)
        named = {label for task in tasks if task is not None for label in task.classes}
        outside = torch.tensor([label not in named for label in self.classes])
        if named:
            answers[tasks.index(None)].masked_fill_(outside, -torch.inf)
        return answers


class Voter(ER):
    """Gives all images of a call the class that most of them seem to have."""

    def scores(self, x: Tensor) -> Tensor:
        scores = super().scores(x)
        votes = torch.bincount(scores.argmax(dim=1), minlength=scores.shape[1])
        return scores + 100.0 * votes / len(x)


class Neighbourly(ER):
    """Lets neighbours agree: the images of a class are asked about one after the other."""

    def scores(self, x: Tensor) -> Tensor:
        scores = super().scores(x)
        smooth = torch.nn.functional.avg_pool1d(scores.T[None], 21, 1, 10)[0].T
        return smooth if len(x) > 1 else scores


@pytest.mark.parametrize("cheat", [Peeker, Voter, Neighbourly])
def test_predictions_that_depend_on_tasks_or_other_images(
    tmp_path: Path, cheat: type[Learner]
) -> None:
    digits = load_dataset("digits")
    # 1,400 images to score on, more than are asked about at once.
    swapped = Dataset("swapped", digits.class_names, lambda: digits.test, lambda: digits.train)
    run(directory=tmp_path / "honest", learner=ER, data=swapped, **QUICK)
    rule, message = violation(tmp_path / "run", cheat, data=swapped)
    assert rule == "task identifiers"
    assert "test images got another class when asked again shuffled and without tasks" in message


class Adapting(ER):
    """Moves its head a little whenever it is asked."""

    def scores(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.head.bias.data += 1e-6
        return super().scores(x)


class Collector(ER):
    """Keeps the images it is asked about, outside its state."""

    def scores(self, x: Tensor) -> Tensor:
        self.asked = x.clone()
        return super().scores(x)


def test_a_state_that_changes_during_an_evaluation(tmp_path: Path) -> None:
    rule, message = violation(tmp_path / "run", Adapting)
    assert (rule, message) == (
        "evaluation",
        "the learner's state changed while it was being tested",
    )


def test_keeping_test_images(tmp_path: Path) -> None:
    rule, message = violation(tmp_path / "run", Collector)
    assert rule == "test data"
    assert int(message.split()[3]) > 0


class Repeating(Cursor):
    """Hands the first batch out again, and says nothing of it."""

    again = True

    def __next__(self) -> Batch:
        if self.position == 1 and self.again:
            self.again = False
            return self._stream[0]
        return super().__next__()


def test_a_cursor_that_reads_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["deepccg.experiment.run"], "Cursor", Repeating)
    rule, message = violation(tmp_path / "run", SGD)
    assert (rule, message) == ("reads", "an example was read 2 times, 1 declared")


def test_a_joint_stream_that_is_passed_more_often_than_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = sys.modules["deepccg.experiment.build"]
    honest = build.JointStream
    monkeypatch.setattr(build, "JointStream", lambda s, **how: honest(s, **{**how, "passes": 3}))
    rule, message = violation(tmp_path / "run", None, method="multi-task")
    assert (rule, message) == ("reads", "an example was read 3 times, 2 declared")


def spy_on(data: Dataset) -> type[Learner]:
    class Spy(SGD):
        """Looks at the test part while it learns."""

        def learn(self, batch: Batch) -> StepInfo:
            assert len(data.test)
            return super().learn(batch)

    return Spy


@pytest.mark.parametrize(
    ("settings", "when"),
    [
        ({"evaluation.validation": 0.25}, "in a run scored on held-out training data"),
        ({}, "while training"),
    ],
    ids=["validation", "test"],
)
def test_the_test_part_is_not_opened(tmp_path: Path, settings: dict, when: str) -> None:
    data = load_dataset("digits")
    assert len(data.test)  # to look at it before the run is the user's business
    run(directory=tmp_path / "honest", data=data, method="sgd", **QUICK, **settings)
    rule, message = violation(tmp_path / "run", spy_on(data), data=data, **settings)
    assert (rule, message) == ("test part", f"the test part of the data set was opened {when}")


def test_a_run_that_failed_fails_again(tmp_path: Path) -> None:
    first = violation(tmp_path / "run", Modest)
    written = (tmp_path / "run" / "audit.json").read_bytes()
    assert violation(tmp_path / "run", Modest) == first
    assert (tmp_path / "run" / "audit.json").read_bytes() == written
