"""Scores against a learner asked image by image, and the promise to embed each image once."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deepccg.core import (
    Batch,
    Config,
    Diverged,
    InputError,
    Learner,
    State,
    StepInfo,
    Task,
    TaskRequired,
    TestSet,
)
from deepccg.evaluation import evaluate


class NearestMean(Learner):
    """Classifies by the nearest mean of what was seen, and counts the examples it embeds."""

    Config = Config

    def __init__(self, config=None, network=None, *, memory=0, classes=(), seed=0):  # noqa: ARG002
        self.network = network or nn.Flatten()
        self.sums: dict[int, Tensor] = {}
        self.counts: dict[int, int] = {}
        self.embedded = 0
        self.needs_task = False

    @property
    def classes(self) -> tuple[int, ...]:
        return tuple(self.sums)

    def learn(self, batch: Batch) -> StepInfo:
        for z, label in zip(self.network(batch.x.float()), batch.y.tolist(), strict=True):
            self.sums[label] = self.sums.get(label, torch.zeros_like(z)) + z
            self.counts[label] = self.counts.get(label, 0) + 1
        return StepInfo(loss=0.0)

    def predict_logits(self, x: Tensor, task: Task | None = None) -> Tensor:
        return self.predict_logits_each(x, [task])[0]

    def predict_logits_each(self, x: Tensor, tasks) -> list[Tensor]:
        if self.needs_task and None in tasks:
            raise TaskRequired("this learner needs a task")
        self.embedded += len(x)
        z = self.network(x.float())
        return [self._scores(z, task) for task in tasks]

    def _scores(self, z: Tensor, task: Task | None) -> Tensor:
        columns = self.columns(task)
        scores = torch.full((len(z), len(columns)), -torch.inf)
        allowed = [c for c in columns if c in self.sums and (task is None or c in task.classes)]
        for label in allowed:
            mean = self.sums[label] / self.counts[label]
            scores[:, columns.index(label)] = -(z - mean).square().sum(dim=1)
        if task is not None and not allowed:
            scores[:, [columns.index(c) for c in task.classes]] = 0.0
        return scores

    def state_dict(self) -> State:
        tensors = {str(label): total for label, total in self.sums.items()}
        return State(tensors, {"counts": dict(self.counts), "embedded": self.embedded})

    def load_state_dict(self, state: State) -> None:
        self.sums = {int(label): total for label, total in state.tensors.items()}
        self.counts, self.embedded = dict(state.meta["counts"]), state.meta["embedded"]


@st.composite
def situations(draw):
    """A learner somewhere in a shifting-window stream, and an unbalanced test set, in any order."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32)))
    order = draw(st.permutations(range(7)))[: draw(st.integers(2, 7))]
    length = draw(st.integers(1, len(order)))
    windows = [order[i : i + length] for i in range(len(order) - length + 1)]
    tasks = tuple(Task(id=100 + i, classes=tuple(window)) for i, window in enumerate(windows))
    met = draw(st.integers(1, len(tasks)))
    learner = NearestMean()
    for task in tasks[:met]:  # some may be known by name only
        least = 0 if learner.classes else 1
        seen = draw(st.lists(st.sampled_from(task.classes), min_size=least, max_size=4))
        if not seen:
            continue
        x = torch.randint(0, 256, (len(seen), 3), generator=generator, dtype=torch.uint8)
        learner.learn(Batch(x, torch.tensor(seen), task))
    extra = draw(st.lists(st.integers(0, 8), max_size=20))  # 7 and 8 belong to no task
    y = torch.tensor(draw(st.permutations(list(order) + extra)))
    x = torch.randint(0, 256, (len(y), 3), generator=generator, dtype=torch.uint8)
    return learner, TestSet(x, y, tasks), met


def asked_one_by_one(learner: Learner, test: TestSet, met: int):
    """Correct images by task, and labels given among all classes, from single predictions."""
    masked = []
    for task in test.tasks[:met]:
        own = [n for n, label in enumerate(test.y.tolist()) if label in task.classes]
        right = [int(learner.predict(test.x[n : n + 1], task)) == int(test.y[n]) for n in own]
        masked.append(dict(zip(own, right, strict=True)))
    images = sorted(set().union(*masked))
    given = {n: int(learner.predict(test.x[n : n + 1])) for n in images}
    return masked, given


@settings(deadline=None)
@given(situations(), st.integers(1, 9), st.booleans(), st.booleans())
def test_scores_equal_predicting_images_one_by_one(situation, chunk, needs_task, final):
    learner, test, met = situation
    masked, answers = asked_one_by_one(learner, test, met)
    unmasked = {n: label == int(test.y[n]) for n, label in answers.items()}
    learner.needs_task = needs_task
    learner.embedded = 0
    result = evaluate(learner, test, step=1, examples=2, task=met - 1, final=final, chunk=chunk)

    assert learner.embedded == len(unmasked) == result.images  # each image exactly once
    assert result.of_images == len(test.y)
    labels = test.y.tolist()
    for task, score, right in zip(test.tasks, result.tasks, masked, strict=False):
        assert (score.task, score.classes) == (task.id - 100, task.classes)
        assert score.images == len(right)
        assert score.task_correct == sum(right.values())
        expected = None if needs_task else sum(unmasked[n] for n in right)
        assert score.class_correct == expected
    assert len(result.tasks) == met

    assert {score.label for score in result.classes} == {labels[n] for n in unmasked}
    for score in result.classes:
        own = [n for n in unmasked if labels[n] == score.label]
        assert score.images == len(own)
        expected = None if needs_task else sum(unmasked[n] for n in own)
        assert score.class_correct == expected
        wrong = Counter(answers[n] for n in own if not unmasked[n])
        expected = tuple(sorted(wrong.items())) if final and not needs_task else None
        assert score.mistaken == expected
        under = [[right[n] for n in own] for right in masked if own[0] in right]
        assert score.task_correct == pytest.approx(sum(map(sum, under)) / len(under))


def small(y=(0, 1, 1, 2, 3)) -> TestSet:
    tasks = (Task(0, (1, 0)), Task(1, (2, 3)))
    return TestSet(torch.arange(len(y)).reshape(-1, 1).to(torch.uint8), torch.tensor(y), tasks)


def trained() -> NearestMean:
    learner = NearestMean()
    learner.learn(Batch(small().x, small().y))
    return learner


MOMENT = {"step": 3, "examples": 30, "final": True}


def test_images_stay_bytes_and_carry_no_gradient():
    seen = []

    class Watching(NearestMean):
        def predict_logits_each(self, x, tasks):
            seen.append((x.dtype, torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
            return super().predict_logits_each(x, tasks)

    learner = Watching()
    learner.learn(Batch(small().x, small().y))
    evaluate(learner, small(), task=1, **MOMENT)
    assert set(seen) == {(torch.uint8, False, False)}
    assert torch.is_grad_enabled()


def test_few_masks_are_predicted():
    """20 classes under 16 windows: a chunk of one class never needs more than its 5 windows."""
    asked = []

    class Watching(NearestMean):
        def predict_logits_each(self, x, tasks):
            asked.append(len(tasks))
            return super().predict_logits_each(x, tasks)

    learner = Watching()
    y = torch.arange(20).repeat(10)[torch.randperm(200, generator=torch.Generator().manual_seed(0))]
    tasks = tuple(Task(i, tuple(range(i, i + 5))) for i in range(16))
    test = TestSet(y.reshape(-1, 1).to(torch.uint8), y, tasks)
    learner.learn(Batch(test.x, y))
    result = evaluate(learner, test, task=15, chunk=10, **MOMENT)
    assert max(asked) == 1 + 5
    assert all(score.task_correct == score.images == 50 for score in result.tasks)


def test_no_image_is_predicted_under_a_foreign_task():
    asked = []

    class Watching(NearestMean):
        def predict_logits_each(self, x, tasks):
            asked.append((set(x.flatten().tolist()), tasks))
            return super().predict_logits_each(x, tasks)

    learner = Watching()
    y = torch.arange(12).repeat(3)
    tasks = (Task(0, (0, 1, 2)), Task(1, (3, 4, 5)), Task(2, (5, 6, 7)), Task(3, (8, 9, 10, 11)))
    test = TestSet(y.reshape(-1, 1).to(torch.uint8), y, tasks)
    learner.learn(Batch(test.x, y))
    result = evaluate(learner, test, task=3, chunk=100, **MOMENT)
    assert [(sorted(labels), [task.id for task in under if task]) for labels, under in asked] == [
        ([0, 1, 2], [0]), ([3, 4], [1]), ([5], [1, 2]), ([6, 7], [2]), ([8, 9, 10, 11], [3]),
    ]  # fmt: skip
    assert [score.images for score in result.tasks] == [9, 9, 9, 12]


def test_the_learner_and_the_random_state_are_left_alone():
    learner = trained()
    before = learner.state_dict()
    draws = torch.random.get_rng_state()
    evaluate(learner, small(), task=1, **MOMENT)
    after = learner.state_dict()
    assert before.tensors.keys() == after.tensors.keys()
    assert all(torch.equal(before.tensors[name], after.tensors[name]) for name in before.tensors)
    assert before.meta["counts"] == after.meta["counts"]
    assert torch.equal(draws, torch.random.get_rng_state())


def test_tasks_not_met_are_left_out_unless_said_otherwise():
    first = evaluate(trained(), small(), task=0, **MOMENT)
    assert [score.task for score in first.tasks] == [0]
    assert (first.images, first.of_images) == (3, 5)
    back_again = evaluate(trained(), small(), task=0, tasks_met=2, of_images=50, **MOMENT)
    assert [score.task for score in back_again.tasks] == [0, 1]
    assert (back_again.images, back_again.of_images) == (5, 50)


def test_a_class_without_images_is_left_out_and_a_task_without_any_refused():
    result = evaluate(trained(), small((0, 1, 2)), task=1, **MOMENT)
    assert {score.label for score in result.classes} == {0, 1, 2}
    with pytest.raises(InputError, match="task 1 has no test images"):
        evaluate(trained(), small((0, 1)), task=1, **MOMENT)


@pytest.mark.parametrize("wrong", [{"task": 2}, {"task": -1}, {"task": 1, "tasks_met": 1}])
def test_a_task_must_be_among_those_met(wrong):
    with pytest.raises(InputError, match="is not among the"):
        evaluate(trained(), small(), **wrong, **MOMENT)


def test_a_chunk_needs_an_image():
    with pytest.raises(InputError, match="at least one image"):
        evaluate(trained(), small(), task=1, chunk=0, **MOMENT)


def test_scores_that_are_not_numbers_are_refused():
    learner = trained()
    learner.sums[1] = torch.tensor([torch.nan])
    with pytest.raises(Diverged):
        evaluate(learner, small(), task=1, **MOMENT)


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(1, 9), st.integers(0, 999), st.booleans())
def test_each_domain_is_scored_on_its_own_look_of_every_image(count, met, chunk, seed, needs_task):
    met = min(met, count)
    generator = torch.Generator().manual_seed(seed)
    tasks = tuple(Task(i, (0, 1, 2)) for i in range(count))
    looks = tuple(lambda x, i=i: x.roll(i, dims=1) for i in range(count))
    x = torch.randint(0, 256, (12, 5), generator=generator, dtype=torch.uint8)
    test = TestSet(x, torch.arange(12) % 3, tasks, looks)
    learner = NearestMean()
    learner.learn(Batch(x[:6].roll(1, dims=1), torch.tensor([0, 1, 2, 2, 1, 0]), tasks[0]))
    right = {
        (i, n): int(learner.predict(x[n : n + 1].roll(i, dims=1))) == n % 3
        for i in range(met)
        for n in range(12)
    }
    learner.needs_task, learner.embedded = needs_task, 0
    scores = evaluate(learner, test, step=1, examples=6, task=met - 1, final=False, chunk=chunk)
    assert learner.embedded == 12 * met
    assert (scores.images, scores.of_images) == (12 * met, 12 * count)
    by_domain = [sum(right[i, n] for n in range(12)) for i in range(met)]
    assert [(score.task, score.images) for score in scores.tasks] == [(i, 12) for i in range(met)]
    assert [score.task_correct for score in scores.tasks] == by_domain
    assert [s.class_correct for s in scores.tasks] == ([None] * met if needs_task else by_domain)
    for score in scores.classes:
        own = sum(right[i, n] for i in range(met) for n in range(12) if n % 3 == score.label)
        assert (score.images, score.task_correct) == (4 * met, own)
        assert score.class_correct == (None if needs_task else own)
