"""Predictions with averaged weights, against a weighted sum of the weights that were recorded."""

import copy

import pytest
import torch
from recipe_world import REPLAYING, assert_same_state, batch, make, queries
from torch import Tensor

from deepccg.core import State, StateMismatch
from deepccg.learners.base import NetworkLearner
from deepccg.methods import METHODS

AVERAGING = [name for name in REPLAYING if name != "esmer"]
DECAY = 0.8


def weights(learner: NetworkLearner) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in learner.trainable_parameters()]


def weighted_sum(history: list[list[Tensor]], index: int, correct: bool = True) -> Tensor:
    """Of parameter ``index``: each row from the weights since it came, the newest counting most."""
    newest = history[-1][index]
    rows = []
    for row in range(len(newest)) if newest.ndim else [None]:
        since = [w[index] for w in history if row is None or row < len(w[index])]
        values = [w if row is None else w[row] for w in since]
        powers = [DECAY**age for age in range(len(values))][::-1]
        total = sum(powers) if correct else 1 / (1 - DECAY)
        rows.append(sum(p * v for p, v in zip(powers, values, strict=True)) / total)
    return torch.stack(rows) if newest.ndim else rows[0]


def history_of(learner: NetworkLearner, steps: int = 9) -> list[list[Tensor]]:
    """Weights after each step on which anything moved."""
    history: list[list[Tensor]] = []
    for step in range(steps):
        before = learner.average.steps
        learner.learn(batch(step))
        if learner.average.steps > before:
            history.append(weights(learner))
    return history


@pytest.mark.parametrize("name", AVERAGING)
def test_predictions_are_those_of_the_weighted_sum(name):
    fields = {"embedding_scale": "learned"} if name == "deepccg" else {}
    learner = make(name, average=DECAY, **fields)
    history = history_of(learner)
    plain = METHODS[name](copy.deepcopy(learner.network), METHODS[name].Config(**fields), memory=10)
    state = learner.state_dict()
    parts = {k: v for k, v in state.meta["parts"].items() if k != "average"}
    tensors = {k: v for k, v in state.tensors.items() if not k.startswith("average.")}
    meta = {**state.meta, "parts": parts, "config": plain.config_dict()}
    plain.load_state_dict(State(tensors, meta))

    def set_to(correct: bool) -> Tensor:
        with torch.no_grad():
            for index, parameter in enumerate(plain.trainable_parameters()):
                parameter.copy_(weighted_sum(history, index, correct))
        plain.load_state_dict(plain.state_dict())  # drops what was derived
        return plain.predict_logits(queries())

    found = learner.predict_logits(queries())
    torch.testing.assert_close(found, set_to(correct=True), rtol=1e-9, atol=1e-9)
    assert not torch.allclose(found, set_to(correct=False), rtol=1e-4)  # wrong: no correction


@pytest.mark.parametrize("name", AVERAGING)
def test_training_does_not_see_it(name):
    plain, averaging = make(name), make(name, average=DECAY)
    for step in range(9):
        assert plain.learn(batch(step)) == averaging.learn(batch(step))
        averaging.predict(queries())
        averaging.classifier()(averaging.representation(queries()))
    state = averaging.state_dict()
    for key, value in plain.state_dict().tensors.items():
        assert torch.equal(state.tensors[key], value), key
    assert not torch.equal(plain.predict_logits(queries()), averaging.predict_logits(queries()))


@pytest.mark.parametrize("fields", [{}, {"views": 3, "readout": "gaussian"}])
@pytest.mark.parametrize("name", ["er", "deepccg", "icarl", "protocl"])
def test_embedding_classifier_and_export_agree(name, fields):
    learner, x = make(name, average=DECAY, **fields), queries()
    history_of(learner)
    for task in (None, batch(0).task):
        classify, z = learner.classifier(task), learner.representation(x, task)
        expected = learner.predict_logits(x, task)
        learner_before = weights(learner)
        torch.testing.assert_close(classify(z), expected)
        assert all(map(torch.equal, weights(learner), learner_before))
    found = learner.readout.inference_module()(x).log_softmax(dim=1)
    torch.testing.assert_close(found, learner.predict_logits(x).log_softmax(dim=1))


@pytest.mark.parametrize("name", AVERAGING)
def test_it_is_saved_and_declared(name):
    learner, other = make(name, average=DECAY), make(name, seed=3, average=DECAY)
    history_of(learner, 7)
    other.load_state_dict(learner.state_dict())
    for step in range(7, 10):
        assert learner.learn(batch(step)) == other.learn(batch(step))
    assert_same_state(learner, other)
    assert torch.equal(learner.predict_logits(queries()), other.predict_logits(queries()))
    own = sum(tensor.nbytes for tensor in weights(learner))
    rows = sum(len(w) if w.ndim else 1 for w in weights(learner))
    assert learner.memory_usage().bytes["average of the weights"] == own + 8 * rows


def test_an_error_while_asking_leaves_the_weights():
    learner = make("er", average=DECAY)
    history_of(learner)
    before = weights(learner)
    with learner.prediction_mode():
        assert not torch.equal(weights(learner)[0], before[0])
    with pytest.raises(IndexError), learner.prediction_mode():
        before[len(before)]
    assert all(map(torch.equal, weights(learner), before))


def test_rows_that_do_not_fit_are_refused():
    learner = make("er", average=DECAY)
    history_of(learner)
    state = learner.state_dict()
    cut = dict(state.tensors)
    of_head = [k for k, v in cut.items() if k.startswith("average.") and len(v) == 4]
    cut |= {key: cut[key][:2] for key in of_head}
    other = make("er", average=DECAY)
    with pytest.raises(StateMismatch, match="average of the weights has other rows"):
        other.load_state_dict(State(cut, state.meta))
    assert_same_state(other, make("er", average=DECAY))


def test_esmer_has_one_of_its_own():
    with pytest.raises(ValueError, match="set ema_decay, or predict_with=working"):
        METHODS["esmer"].Config(average=0.5)
    METHODS["esmer"].Config(average=0.5, predict_with="working")
