"""Batches that no learner can use, and odd ones that every learner must: all methods."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from deepccg.core import Batch, InputError, Learner, State, Task, TaskRequired, make_generator
from deepccg.methods import METHODS
from deepccg.networks import MLP, NetworkConfig, build_network

FEATURES = 6
TASK, NEXT = Task(0, (7, 3), batches=3), Task(1, (5, 11), batches=3)


def learner_of(name: str, shape: tuple[int, ...] = (FEATURES,), memory: int = 8) -> Learner:
    network = build_network(NetworkConfig(kind="mlp", layers=(10, 5)), shape, 0)
    return METHODS[name](network, memory=memory, seed=0)


def vectors(count: int, purpose: str = "x") -> Tensor:
    return torch.randn(count, FEATURES, generator=make_generator(count, purpose))


def taught(name: str, **fields: Any) -> Learner:
    learner = learner_of(name, **fields)
    for step in range(5):
        task = TASK if step < 3 else NEXT
        x = vectors(4, f"step {step}")
        learner.learn(Batch(x, torch.tensor([*task.classes, *task.classes]), task))
    return learner


def require_equal(one: State, other: State) -> None:
    assert one.meta == other.meta
    assert one.tensors.keys() == other.tensors.keys()
    for key, value in one.tensors.items():
        assert torch.equal(value, other.tensors[key]), key


def with_value(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    x = vectors(4).to(dtype)
    x[2, 1] = value
    return x


Y = torch.tensor([7, 3, 3, 7])
REFUSED: dict[str, tuple[Callable[[], Batch], str]] = {
    "nan": (lambda: Batch(with_value(math.nan), Y, TASK), "not finite, or too large"),
    "infinity": (lambda: Batch(with_value(-math.inf), Y, TASK), "not finite"),
    "too large for the network's precision": (
        lambda: Batch(with_value(1e300, torch.float64), Y, TASK),
        "not finite",
    ),
    "other features": (lambda: Batch(vectors(4)[:, :5], Y, TASK), r"examples \[5\] float, .*\[6\]"),
    "further axis": (lambda: Batch(vectors(4)[:, :, None], Y, TASK), r"\[6, 1\] float"),
    "bytes": (lambda: Batch(torch.zeros(4, 6, dtype=torch.uint8), Y, TASK), r"\[6\] uint8"),
    "label outside the task": (
        lambda: Batch(vectors(4), torch.tensor([7, 3, 5, 7]), TASK),
        r"labels \[5\] are not among the classes \[7, 3\] of task 0",
    ),
    "task with other classes": (lambda: Batch(vectors(4), Y, Task(0, (7, 3, 4))), "give it a new"),
    "two tasks of one id": (
        lambda: Batch(vectors(2), Y[:2], tasks=(Task(8, (7, 3)), Task(8, (7, 3, 4)))),
        "two different tasks of one id|one task after the other",
    ),
    "int32": (lambda: Batch(vectors(4).int(), Y, TASK), r"floating numbers, not torch\.int32"),
    "bool": (lambda: Batch(vectors(4) > 0, Y, TASK), r"not torch\.bool: convert it"),
    "complex": (lambda: Batch(vectors(4) * 1j, Y, TASK), r"not torch\.complex64"),
    "numpy": (lambda: Batch(vectors(4).numpy(), Y, TASK), "torch tensor, not ndarray"),
    "labels as floats": (lambda: Batch(vectors(4), Y.float(), TASK), r"int64 .*not torch\.float32"),
    "labels as int32": (lambda: Batch(vectors(4), Y.int(), TASK), r"int64 .*not torch\.int32"),
    "labels as names": (lambda: Batch(vectors(2), ["cat", "dog"], TASK), "list; .*from_arrays"),
    "negative label": (lambda: Batch(vectors(4), Y - 4, None), "the label -1: labels are 0 up"),
    "no examples": (lambda: Batch(vectors(0), Y[:0], TASK), "at least one example"),
    "one label too few": (lambda: Batch(vectors(4), Y[:3], TASK), r"\[4, 6\] and \[3\]"),
}


@pytest.mark.parametrize("name", METHODS)
def test_a_refused_batch_changes_nothing(name: str) -> None:
    learner = taught(name)
    before = learner.state_dict()
    for what, (make, says) in REFUSED.items():
        with pytest.raises(InputError, match=says) as caught:
            learner.learn(make())
        assert str(caught.value).isprintable(), what
        require_equal(before, learner.state_dict())
    twin = taught(name)
    again = Batch(vectors(4), torch.tensor([5, 11, 5, 5]), NEXT)
    assert learner.learn(again) == twin.learn(again)  # nor anything that is not saved
    require_equal(twin.state_dict(), learner.state_dict())


@pytest.mark.parametrize("name", METHODS)
def test_inputs_to_predict_are_checked_too(name: str) -> None:
    learner = taught(name)
    before = learner.state_dict()
    bad: dict[str, tuple[Any, str]] = {
        "nan": (with_value(math.nan), "not finite"),
        "features": (vectors(4)[:, :5], r"x has examples \[5\]"),
        "one example without a batch": (vectors(1)[0], r"shape \[B, \.\.\.\], not \[6\]"),
        "bytes": (torch.zeros(4, 6, dtype=torch.uint8), "uint8, this learner has learned"),
        "integers": (vectors(4).long(), r"not torch\.int64"),
        "numpy": (vectors(4).numpy(), "torch tensor, not ndarray"),
    }
    for x, says in bad.values():
        for ask in (learner.predict, learner.predict_proba, learner.predict_logits):
            with pytest.raises(InputError, match=says):
                ask(x, TASK)
    require_equal(before, learner.state_dict())


@pytest.mark.parametrize("name", METHODS)
def test_other_inputs_are_refused_after_loading_as_well(name: str) -> None:
    learner = learner_of(name)
    learner.load_state_dict(taught(name, memory=8).state_dict())
    with pytest.raises(InputError, match=r"examples \[5\] float"):
        learner.learn(Batch(vectors(4)[:, :5], Y, TASK))


@pytest.mark.parametrize("name", METHODS)
def test_a_first_batch_that_does_not_fit_the_network_changes_nothing(name: str) -> None:
    learner, untouched = learner_of(name), learner_of(name)
    for x in (vectors(4)[:, :5], torch.zeros(4, 3, 4, 4, dtype=torch.uint8)):
        with pytest.raises(InputError, match="the network cannot embed inputs of shape"):
            learner.learn(Batch(x, Y, TASK))
        require_equal(untouched.state_dict(), learner.state_dict())
    learner.learn(Batch(vectors(4), Y, TASK))


class Liar(nn.Module):
    dim = 7

    def __init__(self) -> None:
        super().__init__()
        self.inner = MLP(FEATURES, (5,))

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)


def test_a_network_that_embeds_into_something_else_is_refused() -> None:
    learner = METHODS["sgd"](Liar())
    with pytest.raises(InputError, match=r"as \[1, 5\], its `dim` says \[1, 7\]"):
        learner.learn(Batch(vectors(4), Y, TASK))


@pytest.mark.parametrize("name", METHODS)
def test_floats_of_any_precision_are_taken_in_the_networks(name: str) -> None:
    single, double = learner_of(name), learner_of(name)
    for step in range(3):
        x = vectors(4, f"step {step}")
        assert single.learn(Batch(x, Y, TASK)) == double.learn(Batch(x.double(), Y, TASK))
    require_equal(single.state_dict(), double.state_dict())
    assert torch.equal(single.predict_logits(x, TASK), single.predict_logits(x.double(), TASK))


def proper(learner: Learner, task: Task | None, among: set[int]) -> None:
    """Probabilities sum to one, over ``among`` alone."""
    try:
        probabilities = learner.predict_proba(vectors(9, "probe"), task)
    except TaskRequired:
        return
    assert torch.allclose(probabilities.sum(dim=1), torch.ones(9))
    columns = learner.columns(task)
    outside = [c for c, label in enumerate(columns) if label not in among]
    assert probabilities[:, outside].abs().sum() == 0
    assert set(learner.predict(vectors(9, "probe"), task).tolist()) <= among


@pytest.mark.slow_for_most
@pytest.mark.parametrize("name", METHODS)
def test_tasks_of_one_class(name: str) -> None:
    learner = learner_of(name)
    for label in (4, 9, 4, 2):
        for size in (1, 5):
            labels = torch.full((size,), label)
            info = learner.learn(Batch(vectors(size), labels, Task(label, (label,))))
            assert math.isfinite(info.loss)
        proper(learner, Task(label, (label,)), {label})
    proper(learner, None, {4, 9, 2})


@pytest.mark.parametrize("name", METHODS)
def test_one_class_and_nothing_else(name: str) -> None:
    learner = learner_of(name)
    for _ in range(6):
        assert math.isfinite(learner.learn(Batch(vectors(3), torch.tensor([5, 5, 5]))).loss)
    proper(learner, None, {5})


@pytest.mark.parametrize("name", METHODS)
def test_far_more_memory_than_examples_costs_what_the_examples_cost(name: str) -> None:
    learner, enough = learner_of(name, memory=10**9), learner_of(name, memory=20)
    for step in range(4):
        batch = Batch(vectors(4, f"step {step}"), Y, TASK)
        learner.learn(batch)
        enough.learn(batch)
    assert learner.memory_usage().examples == enough.memory_usage().examples <= 16
    assert learner.memory_usage().bytes == enough.memory_usage().bytes
    # Slots there are, used or not:
    assert sum(column.numel() for column in learner.memory._columns.values()) < 10_000
    proper(learner, TASK, {7, 3})


@pytest.mark.parametrize("name", METHODS)
def test_a_class_that_disappears_is_still_predicted(name: str) -> None:
    learner = learner_of(name)
    learner.learn(Batch(vectors(4), Y, TASK))
    for step in range(12):  # 7 never comes again, neither in its own task nor in others
        task = TASK if step % 2 else NEXT
        labels = torch.tensor([3, 3, 3] if step % 2 else [5, 11, 5])
        info = learner.learn(Batch(vectors(3, f"step {step}"), labels, task))
        assert math.isfinite(info.loss)
    proper(learner, TASK, {7, 3})
    proper(learner, None, {7, 3, 5, 11})


@pytest.mark.parametrize("name", METHODS)
def test_labels_may_be_any_numbers(name: str) -> None:
    """Gaps and sizes do not matter: the same trajectory as with 0, 1, 2, ..."""
    renamed = {7: 0, 3: 1, 5: 2, 11: 3}
    odd, plain = learner_of(name), learner_of(name)
    large = {label: label * 10**15 + 1 for label in renamed}
    for step in range(6):
        task = TASK if step < 3 else NEXT
        labels = [*task.classes, task.classes[0]]
        infos = [
            learner.learn(
                Batch(
                    vectors(3, f"step {step}"),
                    torch.tensor([names[label] for label in labels]),
                    Task(task.id, tuple(names[c] for c in task.classes), task.batches),
                )
            )
            for learner, names in ((odd, large), (plain, renamed))
        ]
        assert infos[0] == infos[1]
    assert odd.classes == tuple(large[label] for label in renamed)


@pytest.mark.slow_for_most
@pytest.mark.parametrize("name", METHODS)
def test_a_thousand_classes(name: str) -> None:
    learner = learner_of(name, memory=100)
    begun = time.process_time()
    for step in range(50):
        task = Task(step, tuple(range(20 * step, 20 * step + 20)), batches=1)
        learner.learn(Batch(vectors(20, f"step {step}"), torch.tensor(task.classes), task))
    assert len(learner.classes) == 1000
    proper(learner, task, set(task.classes))
    proper(learner, None, set(range(1000)))
    assert time.process_time() - begun < 15  # about half a second


@pytest.mark.parametrize(
    ("classes", "says"),
    [
        (("cat", "dog"), "must be integers, not .*: number the classes"),
        ((0.5, 1.5), "must be integers"),
        ((3, -1), "task 0 has the class -1"),
        ((), "has no classes"),
        ((1, 1), "names a class twice"),
    ],
)
def test_a_task_has_numbered_classes(classes: tuple[Any, ...], says: str) -> None:
    with pytest.raises(InputError, match=says):
        Task(0, classes)


def test_integers_of_numpy_and_torch_are_integers() -> None:
    task = Task(np.int64(3), [np.int64(4), torch.tensor(5)])
    assert task == Task(3, (4, 5))
    assert [type(value) for value in (task.id, *task.classes)] == [int, int, int]
