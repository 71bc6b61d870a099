"""Each example is compared with the classes of its own mask, and with no others (methods 1.3)."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepccg.core import Task
from deepccg.learners.heads import masked_cross_entropy
from deepccg.learners.optimiser import reduce
from deepccg.methods import ER, SGD

OLD, NEW = Task(0, (0, 1)), Task(1, (2, 3))
LABELS = (0, 1, 2, 3, 8, 9)


@given(st.integers(0, 2**31), st.floats(-1e3, 1e3))
def test_outputs_outside_the_mask_neither_matter_nor_learn(seed, constant):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(4, 6, generator=generator, dtype=torch.float64).requires_grad_()
    mask = torch.rand(4, 6, generator=generator) < 0.5
    y = torch.randint(6, (4,), generator=generator)
    mask[torch.arange(4), y] = True

    terms = masked_cross_entropy(logits, y, mask)
    (gradient,) = torch.autograd.grad(terms.sum(), logits)
    assert bool((gradient[~mask] == 0).all())
    for row in range(4):
        alone = torch.nn.functional.cross_entropy(
            logits[row, mask[row]][None], mask[row, : int(y[row])].sum()[None]
        )
        torch.testing.assert_close(terms[row], alone)

    moved = (logits.detach() + constant * ~mask).requires_grad_()
    moved_terms = masked_cross_entropy(moved, y, mask)
    assert torch.equal(moved_terms, terms)
    assert torch.equal(torch.autograd.grad(moved_terms.sum(), moved)[0], gradient)


def test_reductions():
    terms = torch.tensor([1.0, 2.0, 6.0])
    assert (reduce(terms, "mean"), reduce(terms, "sum")) == (3.0, 9.0)


def rows_moved(learner, batch) -> set[int]:
    """Labels whose row or bias of the head differs in any bit after one step."""
    before = torch.cat([learner.head.weight, learner.head.bias[:, None]], dim=1).detach().clone()
    learner.learn(batch)
    after = torch.cat([learner.head.weight, learner.head.bias[:, None]], dim=1)
    moved = (before != after).any(dim=1)
    return {label for label, changed in zip(learner.classes, moved, strict=True) if changed}


@pytest.mark.parametrize(
    ("mask", "expected"),
    [("task", {2, 3}), ("seen", {0, 1, 2}), ("all", {0, 1, 2, 3, 8, 9})],
)
@pytest.mark.parametrize("method", [SGD, ER])
def test_one_example_moves_exactly_the_rows_of_its_mask(world, method, mask, expected):
    config = method.Config(train_mask=mask)
    learner = method(world.network(), config, classes=LABELS, memory=0)
    learner.learn(world.batch([0, 1], OLD))
    assert rows_moved(learner, world.batch([2], NEW)) == expected


@pytest.mark.parametrize(
    ("mask", "expected"), [("task", {0, 1}), ("seen", {0, 2}), ("all", {0, 1, 2, 3, 8, 9})]
)
def test_one_replayed_example_adds_the_rows_of_its_own_mask(world, mask, expected):
    config = ER.Config(replay_mask=mask, replay=1)
    learner = ER(world.network(), config, classes=LABELS, memory=1)
    learner.learn(world.batch([0], OLD))
    assert rows_moved(learner, world.batch([2], NEW)) == expected | {2, 3}


def test_stored_examples_of_one_class_keep_the_window_they_came_from(world):
    learner = ER(world.network(), memory=4)
    learner.learn(world.batch([1, 1], Task(0, (0, 1))))
    learner.learn(world.batch([1, 1], Task(1, (1, 2))))
    masks = learner.class_table.mask("task", learner.memory.task)
    allowed = [{learner.classes[column] for column in row.nonzero()} for row in masks]
    assert learner.memory.y.unique().numel() == 1
    assert allowed == [set(task.classes) for _, task in world.who(learner.memory.x)]
    assert len({frozenset(labels) for labels in allowed}) == 2
