"""Saving and loading beyond what the contract suite can see, and networks of every kind."""

import pytest
import torch
from torch import nn

from deepccg.core import Batch, Config, Diverged, InputError, State, StateMismatch, Task
from deepccg.methods import ER, METHODS, SGD, DeepCCG
from deepccg.networks import MLP, Flatten

TASK = Task(0, (0, 1), batches=12)  # PackNet trains all it has in the first half


# In the stream: GDumb trains a copy, when it is asked.
TRAINED = [n for n, kind in METHODS.items() if "lr" in kind.Config.model_fields and n != "gdumb"]


def batches(count: int, features: int = 6) -> list[Batch]:
    generator = torch.Generator().manual_seed(0)
    return [
        Batch(torch.randn(4, features, generator=generator), torch.tensor([0, 1, 1, 0]), TASK)
        for _ in range(count)
    ]


def taught(method, network, count=4, **fields):
    learner = method(network, memory=8, **fields)
    for batch in batches(count):
        learner.learn(batch)
    return learner


@pytest.mark.parametrize("name", METHODS)
def test_state_of_another_precision_is_refused(name):
    state = taught(METHODS[name], MLP(6, (4,)).double()).state_dict()
    with pytest.raises(StateMismatch, match="network differs"):
        METHODS[name](MLP(6, (4,)), memory=8).load_state_dict(state)


@pytest.mark.parametrize("name", ["er", "deepccg"])
def test_state_of_another_budget_is_refused(name):
    state = taught(METHODS[name], MLP(6, (4,))).state_dict()
    with pytest.raises(StateMismatch, match="memory of 8 examples"):
        METHODS[name](MLP(6, (4,)), memory=9).load_state_dict(state)


def test_head_that_does_not_fit_its_classes_is_refused():
    learner = taught(SGD, MLP(6, (4,)))
    state = learner.state_dict()
    cut = {k: v[:-1] if k.startswith("head.") else v for k, v in state.tensors.items()}
    with pytest.raises(StateMismatch, match=r"head has \[1\] rows for 2 classes"):
        learner.load_state_dict(State(cut, state.meta))


def test_state_of_a_later_format_is_refused():
    learner = taught(SGD, MLP(6, (4,)))
    state = learner.state_dict()
    later = state.meta["format"] + 1
    with pytest.raises(StateMismatch, match=f"format {later}, .*: install a later deepccg"):
        learner.load_state_dict(State(state.tensors, {**state.meta, "format": later}))


def test_other_fields_are_loaded_with_a_warning():
    state = taught(SGD, MLP(6, (4,))).state_dict()
    with pytest.warns(UserWarning, match="other method fields"):
        SGD(MLP(6, (4,)), SGD.Config(lr=0.01), memory=8).load_state_dict(state)


@pytest.mark.parametrize("name", METHODS)
def test_embedding_without_parameters_is_learned_on(name):
    learner = taught(METHODS[name], Flatten(6), count=6)
    assert learner.predict_proba(batches(1)[0].x, TASK).sum().item() == pytest.approx(4)


@pytest.mark.parametrize("name", TRAINED)
def test_frozen_parameters_stay_and_the_others_learn(name):
    network = MLP(6, (5, 4))
    frozen, free = network.layers[0].weight.requires_grad_(False), network.layers[3].weight
    before = frozen.clone(), free.detach().clone()
    taught(METHODS[name], network, count=6)
    assert torch.equal(before[0], frozen)
    assert not torch.equal(before[1], free)


def test_scale_is_learned_even_where_the_embedding_is_fixed():
    config = DeepCCG.Config(embedding_scale="learned", initial_scale=0.5)
    learner = taught(DeepCCG, Flatten(6), count=6, config=config)
    assert learner.log_scale.log.exp().item() != pytest.approx(0.5, abs=1e-4)


def test_network_without_a_size_is_refused():
    with pytest.raises(InputError, match="integer attribute `dim`"):
        SGD(nn.Linear(3, 2))


def test_config_of_another_method_is_refused():
    with pytest.raises(InputError, match="ER needs a ERConfig, not a Config"):
        ER(Flatten(3), Config())


def test_negative_memory_is_refused():
    with pytest.raises(InputError, match="0 or more"):
        ER(Flatten(3), memory=-1)


@pytest.mark.parametrize("name", ["sgd", "er"])
def test_loss_that_is_not_finite_stops_the_run(name):
    learner = METHODS[name](MLP(6, (4,)), memory=8)
    learner.learn(batches(1)[0])
    with torch.no_grad():
        learner.head.weight.fill_(torch.inf)
    with pytest.raises(Diverged, match="smaller lr"):
        learner.learn(batches(1)[0])


@pytest.mark.parametrize("name", METHODS)
def test_many_examples_at_once_are_predicted_as_one_by_one(name):
    """Predictions are made in chunks; no example depends on its neighbours."""
    learner = taught(METHODS[name], MLP(6, (5, 4)))
    x = torch.randn(123, 6, generator=torch.Generator().manual_seed(1))
    single = torch.cat([learner.predict_proba(row[None], TASK) for row in x])
    torch.testing.assert_close(learner.predict_proba(x, TASK), single)
    assert learner.predict_proba(x[:0], TASK).shape == (0, 2)
