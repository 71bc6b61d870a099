"""Embedding and classifier, asked for one by one, for every method."""

import pytest
import torch

from deepccg.core import InputError, Learner, Task
from deepccg.methods import METHODS
from deepccg.networks import NetworkConfig, build_network
from deepccg.testing.toy import LABELS, NEW_TASK, TASKS, askable, toy_batch, toy_probe, toy_stream

VARIANTS = [
    *((name, {"passes": 4} if name == "gdumb" else {}) for name in METHODS),
    ("deepccg", {"embedding_scale": "fitted", "variance": "per-class"}),
    ("deepccg", {"embedding_scale": "learned", "normalise": True}),
    ("esmer", {"predict_with": "working"}),
]


def make(name: str, fields: dict, classes: tuple[int, ...] = ()) -> Learner:
    network = build_network(NetworkConfig(kind="mlp", layers=(16, 8)), (8,), 0)
    method = METHODS[name]
    return method(network, method.Config(**fields), memory=12, classes=classes, seed=0)


@pytest.mark.slow_for_most
@pytest.mark.parametrize(("name", "fields"), VARIANTS)
@pytest.mark.parametrize("declared", [(), LABELS], ids=["undeclared", "declared"])
def test_classifying_the_representation_is_predicting(name: str, fields: dict, declared) -> None:
    learner, x = make(name, fields, declared), toy_probe()
    for batch in toy_stream(steps=10):
        learner.learn(batch)
        for task in askable(learner):
            z = learner.representation(x, task)
            expected = learner.predict_logits(x, task)
            torch.testing.assert_close(learner.classifier(task)(z), expected)
            assert not z.requires_grad


@pytest.mark.parametrize(("name", "fields"), VARIANTS)
def test_a_classifier_stays_what_it_was(name: str, fields: dict) -> None:
    learner, x, old = make(name, fields), toy_probe(), TASKS[0]
    stream = toy_stream(steps=10)
    for batch in stream[:6]:
        learner.learn(batch)
    z = learner.representation(x, old)
    classify = learner.classifier(old)
    before = classify(z)
    for batch in stream[6:]:
        learner.learn(batch)
    learner.learn(toy_batch(0, NEW_TASK))  # outputs grow
    assert torch.equal(classify(z), before)


@pytest.mark.slow_for_most
@pytest.mark.parametrize(("name", "fields"), VARIANTS)
def test_asking_changes_nothing(name: str, fields: dict) -> None:
    asked, silent = make(name, fields), make(name, fields)
    for batch in toy_stream(steps=10):
        assert asked.learn(batch) == silent.learn(batch)
        asked.classifier(TASKS[0])(asked.representation(toy_probe(), TASKS[0]))
    one, other = asked.state_dict(), silent.state_dict()
    assert one.meta == other.meta
    assert all(torch.equal(one.tensors[key], value) for key, value in other.tensors.items())


def test_before_learning_there_is_no_class_to_predict() -> None:
    with pytest.raises(InputError, match="nothing was learned yet"):
        make("er", {}).classifier(None)


def test_a_learner_in_one_piece_says_so() -> None:
    class OnePiece(METHODS["sgd"]):
        representation = Learner.representation
        classifier = Learner.classifier

    network = build_network(NetworkConfig(kind="mlp", layers=(4,)), (8,), 0)
    learner = OnePiece(network)
    learner.learn(toy_batch(0, Task(0, (7, 3))))
    for ask in (lambda: learner.representation(toy_probe()), learner.classifier):
        with pytest.raises(InputError, match="OnePiece does not separate its embedding from"):
            ask()
