"""Any method's network under DeepCCG's classifier, against DeepCCG on the same memory."""

import pytest
import torch
from recipe_world import REPLAYING, assert_same_state, batch, make, queries, trained

from deepccg.learners.base import NetworkLearner
from deepccg.methods import METHODS, DeepCCG

TASKS = (None, batch(0).task, batch(6).task)


def deepccg_of(learner: NetworkLearner) -> DeepCCG:
    """DeepCCG with the network, the memory and the classes of another learner."""
    kind = METHODS["deepccg-reservoir"]
    other = kind(learner.predicting_network(), kind.Config(), memory=10, classes=learner.classes)
    own = learner.memory
    other.memory.append(own.x, own.y, own.task)
    other.class_table.load(learner.class_table.state())
    other.inputs.note(own.x)
    return other


@pytest.mark.parametrize("name", REPLAYING)
def test_predictions_are_those_of_deepccg_on_the_same_memory(name):
    learner = make(name, readout="gaussian")
    for step in range(9):
        learner.learn(batch(step))
        if step in (0, 4, 8):  # asked in between: nothing of before is left
            expected = deepccg_of(learner)
            for task in TASKS[: 2 + step // 7]:
                found = learner.predict_logits(queries(), task)
                torch.testing.assert_close(found, expected.predict_logits(queries(), task))


@pytest.mark.parametrize("name", ["er", "er-ace", "derpp", "icarl", "esmer", "protocl"])
def test_training_does_not_see_it(name):
    own, read = trained(name), make(name, readout="gaussian")
    for step in range(10):
        read.learn(batch(step))
        read.predict(queries())
    assert_same_state(own, read)
    one, other = own.predict_proba(queries()), read.predict_proba(queries())
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize("fields", [{}, {"views": 4}])
@pytest.mark.parametrize("name", ["er", "icarl", "esmer"])
def test_embedding_classifier_and_export_agree(name, fields):
    learner, x = trained(name, readout="gaussian", **fields), queries()
    for task in TASKS:
        found = learner.classifier(task)(learner.representation(x, task))
        torch.testing.assert_close(found, learner.predict_logits(x, task))
    found = learner.readout.inference_module()(x).log_softmax(dim=1)
    torch.testing.assert_close(found, learner.predict_logits(x).log_softmax(dim=1))


def test_after_loading_it_is_derived_again():
    learner, other = trained("er", readout="gaussian"), trained("er", 4, readout="gaussian")
    other.predict(queries())
    other.load_state_dict(learner.state_dict())
    assert torch.equal(other.predict_logits(queries()), learner.predict_logits(queries()))


def test_without_a_memory_every_class_is_as_likely():
    kind = METHODS["er"]
    learner = kind(make("er").network, kind.Config(readout="gaussian"), memory=0)
    learner.learn(batch(0))
    assert torch.allclose(learner.predict_proba(queries()), torch.tensor(0.5, dtype=torch.float64))
