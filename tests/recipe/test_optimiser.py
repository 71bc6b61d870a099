"""Momentum, Adam and AdamW against ``torch.optim``, rows that come later included."""

import math

import pytest
import torch
from recipe_world import assert_same_state, batch, make, queries
from torch import Tensor, nn

from deepccg.core import make_generator
from deepccg.learners.recipe import RecipeConfig
from deepccg.learners.stateful_optimiser import StatefulOptimiser

RULES = [
    ({"momentum": 0.9}, torch.optim.SGD, {"momentum": 0.9}),
    ({"weight_decay": 0.1}, torch.optim.SGD, {"weight_decay": 0.1}),
    (
        {"momentum": 0.5, "weight_decay": 0.2},
        torch.optim.SGD,
        {"momentum": 0.5, "weight_decay": 0.2},
    ),
    ({"optimiser": "adam"}, torch.optim.Adam, {}),
    ({"optimiser": "adam", "weight_decay": 0.1}, torch.optim.Adam, {"weight_decay": 0.1}),
    ({"optimiser": "adamw", "weight_decay": 0.1}, torch.optim.AdamW, {"weight_decay": 0.1}),
    ({"optimiser": "adamw"}, torch.optim.AdamW, {"weight_decay": 0.0}),
]
SHAPES = [(4, 3), (4,), (), (2, 3, 5)]


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    return torch.randn(shape, generator=make_generator(seed, str(shape)), dtype=torch.float64)


@pytest.mark.parametrize(("fields", "reference", "settings"), RULES, ids=str)
def test_weights_move_as_those_of_torch(fields, reference, settings):
    own = [nn.Parameter(drawn(shape, 0)) for shape in SHAPES]
    theirs = [nn.Parameter(drawn(shape, 0)) for shape in SHAPES]
    optimiser = StatefulOptimiser(0.05, RecipeConfig(**fields), lambda: own)
    expected = reference(theirs, lr=0.05, **settings)
    for step in range(1, 12):
        gradients = [drawn(shape, step) for shape in SHAPES]
        optimiser.step(own, gradients, step)
        for parameter, gradient in zip(theirs, gradients, strict=True):
            parameter.grad = gradient.clone()
        expected.step()
        for parameter, other in zip(own, theirs, strict=True):
            torch.testing.assert_close(parameter, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(("fields", "reference", "settings"), RULES, ids=str)
def test_rows_that_come_later_are_new_parameters(fields, reference, settings):
    own = [nn.Parameter(drawn((2, 3), 0))]
    optimiser = StatefulOptimiser(0.05, RecipeConfig(**fields), lambda: own)
    old, new = nn.Parameter(drawn((2, 3), 0)), nn.Parameter(drawn((3, 3), 1))
    of_old, of_new = (reference([p], lr=0.05, **settings) for p in (old, new))
    for step in range(1, 10):
        if step == 5:
            own[0] = nn.Parameter(torch.cat([own[0].detach(), drawn((3, 3), 1)]))
        gradient = drawn((5, 3), step)[: len(own[0])]
        optimiser.step(own, [gradient], step)
        old.grad = gradient[:2].clone()
        of_old.step()
        if step >= 5:
            new.grad = gradient[2:].clone()
            of_new.step()
    expected = torch.cat([old, new]).detach()
    torch.testing.assert_close(own[0].detach(), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("warmup", [0, 1, 5])
@pytest.mark.parametrize("schedule", ["constant", "inverse-sqrt"])
def test_step_sizes_follow_the_schedule(schedule, warmup):
    """A plain step on a gradient of 1 moves by the step size."""
    own = [nn.Parameter(torch.zeros(1, dtype=torch.float64))]
    recipe = RecipeConfig(schedule=schedule, warmup=warmup, momentum=0.0, weight_decay=0.0)
    if recipe.plain_sgd:
        return
    optimiser = StatefulOptimiser(0.5, recipe, lambda: own)
    for step in range(1, 30):
        before = own[0].item()
        optimiser.step(own, [torch.ones(1, dtype=torch.float64)], step)
        expected = 0.5
        if step <= warmup:
            expected *= step / warmup
        elif schedule == "inverse-sqrt":
            expected *= math.sqrt(max(warmup, 1)) / math.sqrt(step)
        assert before - own[0].item() == pytest.approx(expected, rel=1e-12)


LEARNERS = [("er", {}), ("deepccg", {"embedding_scale": "learned"}), ("derpp", {}), ("agem", {})]
KEPT = [{"momentum": 0.9}, {"optimiser": "adamw", "lr": 0.01}, {"warmup": 20}]


@pytest.mark.parametrize("fields", KEPT, ids=str)
@pytest.mark.parametrize(("name", "own"), LEARNERS)
def test_it_is_saved_and_declared(name, own, fields):
    fields = {**own, **fields}
    learner, other = make(name, **fields), make(name, seed=3, **fields)
    for step in range(7):
        learner.learn(batch(step))
    other.load_state_dict(learner.state_dict())
    for step in range(7, 10):
        assert learner.learn(batch(step)) == other.learn(batch(step))
    assert_same_state(learner, other)
    assert torch.equal(learner.predict_logits(queries()), other.predict_logits(queries()))
    parameters = learner.trainable_parameters()
    rows = sum(len(p) if p.ndim else 1 for p in parameters)
    copies = {"momentum": 1, "optimiser": 2, "warmup": 0}[next(k for k in fields if k not in own)]
    expected = copies * sum(p.nbytes for p in parameters) + 8 * rows
    assert learner.memory_usage().bytes["optimiser"] == expected


def test_a_forgotten_momentum_is_noticed():
    """Wrong: a resumed learner that starts its optimiser anew."""
    learner, other = make("er", momentum=0.9), make("er", momentum=0.9)
    for step in range(7):
        learner.learn(batch(step))
    other.load_state_dict(learner.state_dict())
    other.optimiser.kept["velocity"][0].zero_()
    learner.learn(batch(7))
    other.learn(batch(7))
    one, two = learner.state_dict().tensors, other.state_dict().tensors
    assert not all(torch.equal(one[key], two[key]) for key in one)


def test_adam_has_a_momentum_of_its_own():
    with pytest.raises(ValueError, match="momentum is for optimiser=sgd: adamw has its own"):
        RecipeConfig(optimiser="adamw", momentum=0.9)
