"""Every method on an embedding that does not move: fixed features, and frozen weights."""

import copy

import pytest
import torch
from torch import nn

from deepccg.core import Batch, Learner
from deepccg.methods import ER, METHODS
from deepccg.networks import NetworkConfig, build_network, unfitted_features
from deepccg.testing.toy import (
    FEATURES,
    LABELS,
    MEMORY,
    TASKS,
    saved_state,
    toy_batch,
    toy_network,
    toy_stream,
)

SIDE = 8


def as_images(x: torch.Tensor) -> torch.Tensor:
    """Vectors ``[B, 8]`` as bytes ``[B, 1, 8, 8]`` that have them in every row and column."""
    rows = (x * 40 + 128).clamp(0, 255)
    return ((rows[:, None, :, None] + rows[:, None, None, :]) / 2).to(torch.uint8)


def fixed(kind: str) -> nn.Module:
    """A network with nothing to train."""
    if kind == "frozen":
        return toy_network().requires_grad_(False)
    shape = (1, SIDE, SIDE) if kind == "patches" else (FEATURES,)
    config = NetworkConfig(kind=kind, filters=10, patch_side=4, mirror=False, features=30)
    return build_network(config, shape, seed=0)


def stream(kind: str, steps: int = 24) -> list[Batch]:
    batches = toy_stream(steps=steps)
    if kind != "patches":
        return batches
    return [Batch(as_images(batch.x), batch.y, batch.task) for batch in batches]


def built(method: str, kind: str) -> Learner:
    learner = METHODS[method]
    # The first batch, a few examples of two classes, says little of how long embeddings will be.
    steps = {"lr": 0.02} if "lr" in learner.Config.model_fields else {}
    return learner(fixed(kind), learner.Config(**steps), memory=MEMORY, classes=LABELS, seed=0)


@pytest.mark.slow_for_most
@pytest.mark.parametrize("kind", ["patches", "fourier", "frozen"])
@pytest.mark.parametrize("method", METHODS)
def test_it_learns_and_resumes_and_the_embedding_stays(method: str, kind: str) -> None:
    learner = built(method, kind)
    network = learner.network  # type: ignore[attr-defined]  # of every method here
    batches = stream(kind)
    for batch in batches[:15]:
        learner.learn(batch)
    assert not list(unfitted_features(network))
    embedding = copy.deepcopy(network.state_dict())
    twin = built(method, kind)
    twin.load_state_dict(saved_state(learner))
    for batch in batches[15:]:
        assert learner.learn(batch) == twin.learn(batch)
    probe = toy_batch(9, TASKS[1], purpose="probe", size=40)
    x = as_images(probe.x) if kind == "patches" else probe.x
    logits = learner.predict_logits(x, TASKS[1])
    assert torch.equal(logits, twin.predict_logits(x, TASKS[1]))
    assert all(torch.equal(v, embedding[k]) for k, v in network.state_dict().items())
    if method != "esmer":  # whose slow copy lags behind so short a stream
        found = torch.tensor(learner.columns(TASKS[1]))[logits.argmax(dim=1)]
        assert (found == probe.y).double().mean() > 0.7


@pytest.mark.parametrize("kind", ["patches", "fourier"])
def test_a_transaction_that_fails_fits_nothing(kind: str) -> None:
    learner = ER(fixed(kind), memory=MEMORY)
    before = saved_state(learner).tensors

    def learn_and_stop() -> None:
        with learner.transaction():
            learner.learn(stream(kind)[0])
            assert not list(unfitted_features(learner.network))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learn_and_stop()
    assert list(unfitted_features(learner.network))
    after = saved_state(learner).tensors
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
